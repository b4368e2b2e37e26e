#include "tests/crash/client.h"

#include <stdio.h>

#include <algorithm>

#include <fmt/format.h>

namespace fpfs::crash {

namespace {
constexpr uint64_t kChunk = 64 * kKiB;
constexpr unsigned kNamesPerClient = 3;
}  // namespace

// --- choices
// ------------------------------------------------------------------------------------------------------------

Client::Place Client::random_place() {
  Place place;
  place.directory = random_.below(session_.directories.size());
  place.name = fmt::format("c{}-{}", number_, random_.below(kNamesPerClient));
  place.path = session_.directory_names[place.directory] + "/" + place.name;
  return place;
}

// Small files inside their sidecar, sizes around the inline limit and around chunk boundaries, and a few chunks.
uint64_t Client::random_length() {
  uint64_t length = 0;
  switch (random_.below(6)) {
    case 0:
      length = random_.below(600);
      break;
    case 1:
      length = random_.below(32 * kKiB);
      break;
    case 2:
      length = 32 * kKiB - 3 + random_.below(7);
      break;
    case 3:
      length = kChunk * random_.between(1, 4) - 2 + random_.below(5);
      break;
    default:
      length = random_.below(session_.largest_file);
  }
  return std::min(length, session_.largest_file);
}

// Depends on the position, so that a chunk or a sector that is out of place shows.
Content Client::make_data(size_t length) {
  Content data(length);
  const uint64_t salt = random_.next();
  for (size_t i = 0; i < length; i += 8) {
    const uint64_t word = SimRandom(salt + i).next();
    for (size_t b = 0; b < 8 && i + b < length; ++b) data[i + b] = static_cast<std::byte>(word >> (8 * b));
  }
  return data;
}

Task<bool> Client::run(unsigned chores) {
  for (unsigned i = 0; i < chores && !session_.world.is_off() && session_.failure.empty(); ++i) {
    const Place place = random_place();
    bool went_on = true;
    switch (random_.below(19)) {
      case 0:
      case 1:
      case 2:
      case 3:
        went_on = co_await save(place);
        break;
      case 4:
      case 5:
      case 6:
        went_on = co_await save_and_rename(place);
        break;
      case 7:
      case 8:
        went_on = co_await change_in_place(place);
        break;
      case 9:
      case 10:
        went_on = co_await resize(place);
        break;
      case 11:
        went_on = co_await append_small(place);
        break;
      case 12:
        went_on = co_await link_and_unlink(place);
        break;
      case 13:
        went_on = co_await remove(place);
        break;
      case 14:
        went_on = co_await save_unnamed(place);
        break;
      case 15:
        went_on = co_await exchange(place);
        break;
      case 16:
        if (random_.chance(10)) went_on = co_await keep_committing(place);
        break;
      default:
        went_on = co_await synchronize(place);
        break;
    }
    if (!went_on) co_return false;
  }
  co_return true;
}

// --- steps
// --------------------------------------------------------------------------------------------------------------

// Before a call that changes content: with commits at any point, what it leads to may show after a crash.
void Client::changed(OpenFile& file, const Content& content) {
  if (session_.any_point) file.model->may_show(content);
}

// A commit that was asked for when the file had this version and these names was acknowledged. For a file without a
// name that promises nothing: should its last name come back with a power cut, so does what was committed under it.
void Client::committed(const OpenFile& file, size_t version, Model::Operation names) {
  if (!session_.model.has_name(file.inode)) return;
  file.model->acknowledge(version);
  // Names that it got before it was opened are the business of who gave them.
  session_.model.file_names_synced(file.inode, file.opened_at, names);
}

bool Client::open_existing(const Place& place, OpenFile* out) {
  Store& store = session_.store;
  Result<Store::Node> node = store.lookup(session_.directories[place.directory], place.name);
  if (!session_.good(node.status(), "lookup of " + place.path)) return false;
  Result<std::shared_ptr<File>> file = store.open_file(node->handle, true);
  store.storage().close(node->handle);
  if (!session_.good(file.status(), "open of " + place.path)) return false;
  *out = {*file, session_.model.file(node->attributes.st_ino), node->attributes.st_ino, session_.model.now()};
  if (out->model == nullptr || session_.model.inode_at(place.path) != out->inode)
    session_.fail(fmt::format("{} leads to inode {}, which is wrong", place.path, out->inode));
  else if (static_cast<uint64_t>(node->attributes.st_size) != out->model->content().size())
    session_.fail(fmt::format("{} shows a size of {}, it is {}", place.path, node->attributes.st_size,
                              out->model->content().size()));
  return session_.failure.empty();
}

bool Client::create(const Place& place, OpenFile* out) {
  const Model::Operation operation = session_.model.begin({{place.path, Model::kUnknownNew}});
  Result<Store::Created> created = session_.store.create(session_.directories[place.directory], place.name, 0644);
  if (!session_.good(created.status(), "create of " + place.path)) return false;
  const uint64_t inode = created->node.attributes.st_ino;
  session_.store.storage().close(created->node.handle);
  session_.model.done(operation, inode);
  *out = {created->file, session_.model.add_file(inode, {}), inode, operation};
  return true;
}

bool Client::open_or_create(const Place& place, OpenFile* out) {
  return exists(place) ? open_existing(place, out) : create(place, out);
}

Task<bool> Client::write(OpenFile& file, uint64_t offset, size_t length) {
  const Content data = make_data(length);
  Content after = file.model->content();
  after.resize(std::max<size_t>(after.size(), offset + length));
  std::copy(data.begin(), data.end(), after.begin() + static_cast<ptrdiff_t>(offset));
  changed(file, after);
  WriteCall call(session_.scheduler, *file.file, offset, data);
  call.start();
  const Status status = co_await call;
  if (!session_.good(status, "write")) {
    if (!session_.world.is_off()) file.model->forget();  // a part of it may be there
    co_return false;
  }
  file.model->set_content(std::move(after));
  co_return true;
}

Task<bool> Client::write_sequentially(OpenFile& file, uint64_t length) {
  uint64_t offset = 0;
  // Savers write in pieces of any size: headers of 64 bytes, tensors, whole requests.
  const uint64_t largest_piece = random_.chance(30) ? 5000 : random_.between(1000, 300'000);
  while (offset < length) {
    const uint64_t piece = std::min(length - offset, random_.chance(20) ? 64 : random_.between(1, largest_piece));
    if (!co_await write(file, offset, piece)) co_return false;
    offset += piece;
    if (random_.chance(3) && !co_await commit(file, false)) co_return false;
  }
  co_return true;
}

Task<bool> Client::truncate(OpenFile& file, uint64_t size) {
  Content after = file.model->content();
  after.resize(size);
  changed(file, after);
  ControlCall call(session_.scheduler, *file.file, ControlRequest::Kind::kTruncate, size);
  call.start();
  const Status status = co_await call;
  if (!session_.good(status, "truncate")) co_return false;
  file.model->set_content(std::move(after));
  co_return true;
}

Task<bool> Client::punch(OpenFile& file, uint64_t offset, uint64_t length) {
  Content after = file.model->content();
  const uint64_t end = std::min<uint64_t>(after.size(), offset + length);
  if (offset < end) std::fill_n(after.begin() + static_cast<ptrdiff_t>(offset), end - offset, std::byte{0});
  if (session_.any_point) {
    // The ragged ends are written before the whole chunks go: a commit may come between any of the pieces.
    Content piece = file.model->content();
    const uint64_t head_end = std::min(end, round_up(offset, kChunk));
    const uint64_t tail = std::max(head_end, round_down(end, kChunk));
    for (const auto& [from, to] : {std::pair(offset, head_end), std::pair(tail, end)}) {
      if (from < to) std::fill_n(piece.begin() + static_cast<ptrdiff_t>(from), to - from, std::byte{0});
      changed(file, piece);
    }
  }
  changed(file, after);
  ControlCall call(session_.scheduler, *file.file, ControlRequest::Kind::kPunchHole, offset, length);
  call.start();
  const Status status = co_await call;
  if (!session_.good(status, "punch")) {
    if (!session_.world.is_off()) file.model->forget();  // a part of it may be there
    co_return false;
  }
  file.model->set_content(std::move(after));
  co_return true;
}

Task<bool> Client::read_back(OpenFile& file) {
  const Content& expected = file.model->content();
  ReadCursor cursor;
  const bool random_access = random_.chance(30);
  uint64_t offset = 0;
  while (offset <= expected.size()) {
    const auto length = static_cast<uint32_t>(random_.between(1, 200'000));
    ReadCall call(session_.scheduler, *file.file, offset, length, random_.chance(80) ? &cursor : nullptr);
    call.start();
    if (!session_.good(co_await call, "read")) {
      // The client gives up here; what it changed is committed when the mount ends, unless that is a power cut.
      if (!session_.world.is_off()) file.model->may_show(expected);
      co_return false;
    }
    const uint64_t end = std::min<uint64_t>(expected.size(), offset + length);
    if (call.data.size() != end - offset ||
        !std::equal(call.data.begin(), call.data.end(), expected.begin() + static_cast<ptrdiff_t>(offset))) {
      session_.fail(
          fmt::format("a read of {} bytes at {} of a file of {} (inode {}) gave other bytes than were written", length,
                      offset, expected.size(), file.inode));
      co_return false;
    }
    if (random_access && random_.chance(50)) break;
    offset = random_access ? random_.below(expected.size() + 1) : offset + length;
  }
  co_return true;
}

Task<bool> Client::commit(OpenFile& file, bool closing) {
  const size_t version = file.model->may_show(file.model->content());
  const Model::Operation names = session_.model.now();
  using Kind = ControlRequest::Kind;
  ControlCall call(session_.scheduler, *file.file, closing ? Kind::kClose : Kind::kCommit);
  call.start();
  if (!session_.good(co_await call, "commit")) co_return false;
  committed(file, version, names);
  co_return true;
}

// The program goes on writing before its fsync has returned (another thread of it).
Task<bool> Client::commit_while_writing(OpenFile& file) {
  const size_t version = file.model->may_show(file.model->content());
  const Model::Operation names = session_.model.now();
  ControlCall call(session_.scheduler, *file.file, ControlRequest::Kind::kCommit);
  call.start();
  bool went_on = true;
  for (uint64_t writes = random_.between(1, 4); went_on && writes > 0; --writes) {
    const uint64_t offset = random_.below(file.model->content().size() + 1);
    went_on = co_await write(file, offset, random_.between(1, 100'000));
  }
  const Status status = co_await call;
  if (!session_.good(status, "commit beside writes") || !went_on) co_return false;
  committed(file, version, names);
  co_return true;
}

// close(2) of the last writer, as the mount does it.
Task<bool> Client::close(OpenFile& file) {
  bool went_on = true;
  if (session_.durable == StoreOptions::Durable::kClose) {
    went_on = co_await commit(file, true);
  } else {
    if (random_.chance(40)) went_on = co_await commit(file, false);
    file.model->may_show(file.model->content());
    file.file->closed_by_writer();
  }
  file.file.reset();
  co_return went_on;
}

Task<bool> Client::rename(const Place& from, const Place& to, unsigned flags) {
  const uint64_t inode = session_.model.inode_at(from.path), replaced = session_.model.inode_at(to.path);
  // What takes the place of another file's content is committed first.
  const auto change = [this](const Place& place, uint64_t after, uint64_t before) {
    Model::Change result{place.path, after};
    if (after == Model::kAbsent) return result;
    const std::shared_ptr<FileModel> model = session_.model.file(after), gone = session_.model.file(before);
    const size_t version = model->may_show(model->content());
    if (gone != nullptr && gone->has_committed_content()) result.oldest_version = version;
    return result;
  };
  const bool exchanges = (flags & RENAME_EXCHANGE) != 0;
  const Model::Operation operation =
      session_.model.begin({change(from, exchanges ? replaced : Model::kAbsent, inode), change(to, inode, replaced)});
  RenameCall call(session_.scheduler, session_.store, session_.directories[from.directory], from.name,
                  session_.directories[to.directory], to.name, flags);
  call.start();
  if (!session_.good(co_await call, "rename of " + from.path + " to " + to.path)) co_return false;
  session_.model.done(operation);
  co_return true;
}

bool Client::sync_directory(size_t directory) {
  const Model::Operation names = session_.model.now();
  if (!session_.good(session_.store.sync_directory(session_.directories[directory]), "sync of a directory"))
    return false;
  session_.model.directory_synced(session_.directory_names[directory], names);
  return true;
}

// --- chores
// -------------------------------------------------------------------------------------------------------------

// A saver: create, or open with O_TRUNC, write, close.
Task<bool> Client::save(Place place) {
  OpenFile file;
  const bool replaces = exists(place);
  if (!open_or_create(place, &file)) co_return false;
  if (replaces && !co_await truncate(file, 0)) co_return false;
  if (!co_await write_sequentially(file, random_length())) co_return false;
  if (random_.chance(20) && !co_await read_back(file)) co_return false;
  if (!co_await close(file)) co_return false;
  if (random_.chance(20) && !sync_directory(place.directory)) co_return false;
  co_return true;
}

// Renames a temporary file over a name. Or both change places, named in any order, and what was there goes.
Task<bool> Client::publish(Place temporary, Place place) {
  if (!exists(place) || !random_.chance(20)) co_return co_await rename(temporary, place, 0);
  const bool old_first = random_.chance(50);
  if (!co_await rename(old_first ? place : temporary, old_first ? temporary : place, RENAME_EXCHANGE)) co_return false;
  co_return co_await remove(temporary);
}

// The careful saver: a temporary file that is renamed over, before or after it is closed.
Task<bool> Client::save_and_rename(Place place) {
  Place temporary = place;
  if (random_.chance(30)) temporary.directory = random_.below(session_.directories.size());
  do {  // those of an earlier mount may still be there
    temporary.name = fmt::format("c{}-tmp{}", number_, temporary_count_++);
    temporary.path = session_.directory_names[temporary.directory] + "/" + temporary.name;
  } while (exists(temporary));
  OpenFile file;
  if (!create(temporary, &file)) co_return false;
  if (!co_await write_sequentially(file, random_length())) co_return false;
  if (random_.chance(50) && !co_await commit(file, false)) co_return false;
  const bool rename_first = random_.chance(40);
  if (rename_first && !co_await publish(temporary, place)) co_return false;
  if (!co_await close(file)) co_return false;
  if (!rename_first && !co_await publish(temporary, place)) co_return false;
  if (random_.chance(40) && !sync_directory(place.directory)) co_return false;
  co_return true;
}

// A program that modifies its file in place and calls fsync.
Task<bool> Client::change_in_place(Place place) {
  OpenFile file;
  if (!open_or_create(place, &file)) co_return false;
  for (uint64_t writes = random_.between(1, 8); writes > 0; --writes) {
    const uint64_t offset = random_.below(std::max<uint64_t>(file.model->content().size(), 1) + random_.below(5000));
    const uint64_t room = session_.largest_file - std::min(offset, session_.largest_file);
    const uint64_t length = std::min(room, random_.between(1, random_.chance(70) ? 3000 : 150'000));
    if (length > 0 && !co_await write(file, offset, length)) co_return false;
    if (random_.chance(25) && !co_await commit(file, false)) co_return false;
    if (random_.chance(15) && !co_await commit_while_writing(file)) co_return false;
    if (random_.chance(20) && !co_await read_back(file)) co_return false;
  }
  co_return co_await close(file);
}

Task<bool> Client::resize(Place place) {
  OpenFile file;
  if (!open_or_create(place, &file)) co_return false;
  for (uint64_t changes = random_.between(1, 5); changes > 0; --changes) {
    const uint64_t size = file.model->content().size();
    const uint64_t offset = random_.below(size + 1);
    bool went_on = true;
    switch (random_.below(4)) {
      case 0:
        went_on = co_await truncate(file, offset);
        break;
      case 1:
        went_on = co_await truncate(file, random_.below(session_.largest_file));
        break;
      case 2:
        went_on = co_await punch(file, offset, random_.between(1, 200'000));
        break;
      default:
        went_on = co_await write(file, offset, random_.between(1, 70'000));
        break;
    }
    if (!went_on) co_return false;
    if (random_.chance(30) && !co_await commit(file, false)) co_return false;
    if (random_.chance(30) && !co_await read_back(file)) co_return false;
  }
  co_return co_await close(file);
}

// A log: small appends, each with its fsync, from inline content to chunks.
Task<bool> Client::append_small(Place place) {
  OpenFile file;
  if (!open_or_create(place, &file)) co_return false;
  const uint64_t largest_piece = random_.chance(50) ? 300 : 9000;
  for (uint64_t appends = random_.between(2, 12); appends > 0; --appends) {
    if (file.model->content().size() + largest_piece > session_.largest_file) break;
    if (!co_await write(file, file.model->content().size(), random_.between(1, largest_piece))) co_return false;
    if (random_.chance(70) && !co_await commit(file, false)) co_return false;
  }
  co_return co_await close(file);
}

// O_TMPFILE: the file has no name until it is whole.
Task<bool> Client::save_unnamed(Place place) {
  if (exists(place)) co_return true;
  Store& store = session_.store;
  const Handle directory = session_.directories[place.directory];
  Result<Store::Created> created = store.create_unnamed(directory, 0600);
  if (!session_.good(created.status(), "create of an unnamed file")) co_return false;
  const Handle node = created->node.handle;
  const uint64_t inode = created->node.attributes.st_ino;
  OpenFile file{created->file, session_.model.add_file(inode, {}), inode, session_.model.now()};
  created->file.reset();
  bool went_on = co_await write_sequentially(file, random_length());
  if (went_on && random_.chance(30)) went_on = co_await commit(file, false);
  if (went_on) {
    const Model::Operation operation = session_.model.begin({{place.path, inode}}, true);
    went_on = session_.good(store.link(node, directory, place.name), "link of an unnamed file");
    if (went_on) session_.model.done(operation);
  }
  store.storage().close(node);
  if (!went_on) co_return false;
  co_return co_await close(file);
}

// Many small commits of one file: its sidecar's log is compacted on the way.
Task<bool> Client::keep_committing(Place place) {
  OpenFile file;
  if (!open_or_create(place, &file)) co_return false;
  if (!co_await write(file, 0, random_.between(1, 2 * kChunk))) co_return false;
  for (uint64_t commits = random_.between(100, 700); commits > 0; --commits) {
    if (!co_await write(file, random_.below(file.model->content().size()), random_.between(1, 20))) co_return false;
    if (!co_await commit(file, false)) co_return false;
  }
  co_return co_await close(file);
}

Task<bool> Client::exchange(Place place) {
  const Place other = random_place();
  if (!exists(place) || !exists(other)) co_return true;
  if (session_.model.inode_at(place.path) == session_.model.inode_at(other.path)) co_return true;
  if (!co_await rename(place, other, RENAME_EXCHANGE)) co_return false;
  if (random_.chance(40) && !sync_directory(place.directory)) co_return false;
  co_return true;
}

Task<bool> Client::link_and_unlink(Place place) {
  const uint64_t inode = session_.model.inode_at(place.path);
  const Place other = random_place();
  if (inode == Model::kAbsent || exists(other)) co_return true;
  Store& store = session_.store;
  Result<Store::Node> node = store.lookup(session_.directories[place.directory], place.name);
  if (!session_.good(node.status(), "lookup of " + place.path)) co_return false;
  const Model::Operation operation = session_.model.begin({{other.path, inode}});
  const Status linked = store.link(node->handle, session_.directories[other.directory], other.name);
  store.storage().close(node->handle);
  if (!session_.good(linked, "link of " + other.path)) co_return false;
  session_.model.done(operation);
  if (random_.chance(50) && !sync_directory(other.directory)) co_return false;
  if (random_.chance(50)) co_return co_await remove(place);
  co_return true;
}

// Sometimes while the file is open and goes on being written to.
Task<bool> Client::remove(Place place) {
  if (!exists(place)) co_return true;
  OpenFile file;
  const bool keep_open = random_.chance(40);
  if (keep_open && !open_existing(place, &file)) co_return false;
  const Model::Operation operation = session_.model.begin({{place.path, Model::kAbsent}});
  if (!session_.good(session_.store.unlink(session_.directories[place.directory], place.name),
                     "unlink of " + place.path))
    co_return false;
  session_.model.done(operation);
  if (keep_open) {
    if (!co_await write(file, random_.below(file.model->content().size() + 1), random_.between(1, 100'000)))
      co_return false;
    if (!co_await read_back(file)) co_return false;
    if (!co_await close(file)) co_return false;
  }
  if (random_.chance(40) && !sync_directory(place.directory)) co_return false;
  co_return true;
}

Task<bool> Client::synchronize(Place place) {
  if (random_.chance(60)) co_return sync_directory(place.directory);
  if (!session_.any_point) co_return true;
  const Model::Operation names = session_.model.now();
  std::vector<std::pair<std::shared_ptr<FileModel>, size_t>> mine;
  for (const auto& [path, inode] : session_.model.names()) {
    if (inode == Model::kAbsent || !path.substr(path.find('/')).starts_with(fmt::format("/c{}-", number_))) continue;
    const std::shared_ptr<FileModel> file = session_.model.file(inode);
    mine.emplace_back(file, file->may_show(file->content()));
  }
  SyncAllCall call(session_.scheduler, session_.store);
  call.start();
  if (!session_.good(co_await call, "sync of everything")) co_return false;
  for (const auto& [file, version] : mine) file->acknowledge(version);
  session_.model.all_synced(names);
  co_return true;
}

}  // namespace fpfs::crash
