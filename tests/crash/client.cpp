#include "tests/crash/client.h"

#include <stdio.h>
#include <sys/stat.h>

#include <algorithm>

#include <fmt/format.h>

#include "tests/crash/copier.h"

namespace fpfs::crash {

namespace {
constexpr unsigned kNamesPerClient = 3;
// So many processes can be told apart in one description (Writer::kActorsMax, by their owner and by their number).
constexpr unsigned kForksMax = 3;
}  // namespace

// --- choices --------------------------------------------------------------------------------------------------------

Client::Place Client::random_place() {
  Place place;
  place.directory = random_.below(session_.directories.size());
  place.name = fmt::format("c{}-{}", number_, random_.below(kNamesPerClient));
  place.path = session_.directory_names[place.directory] + "/" + place.name;
  return place;
}

// Small files inside their sidecar, sizes around the inline limit and around chunk boundaries, and a few chunks.
uint64_t Client::random_length() {
  // Of files that are short everything is written before what they could share is known.
  if (shares_content() && random_.chance(50))
    return std::min(random_.between(3 * kChunk, 10 * kChunk), session_.largest_file);
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

// Depends on the position, so that a chunk or a sector that is out of place shows. Where it may be stored encoded, some
// of it can be.
//
// Where files may share chunks, most of it is one of a few contents, each the same at one offset of all files.
Content Client::make_data(size_t length, uint64_t offset) {
  if (shares_content() && random_.chance(95)) return make_shared_data(length, offset);
  Content data(length);
  const uint64_t salt = random_.next();
  const bool shrinks = session_.options.compression.mode != Compression::Mode::kOff && salt % 4 != 0;
  const uint64_t kept = shrinks ? 0xff : UINT64_MAX;
  for (size_t i = 0; i < length; i += 8) {
    const uint64_t word = SimRandom(salt + i).next() & kept;
    for (size_t b = 0; b < 8 && i + b < length; ++b) data[i + b] = static_cast<std::byte>(word >> (8 * b));
  }
  return data;
}

Content Client::make_shared_data(size_t length, uint64_t offset) const {
  Content data(length);
  const uint64_t kept = session_.options.compression.mode != Compression::Mode::kOff ? 0xff : UINT64_MAX;
  for (size_t i = 0; i < length; ++i) {
    const uint64_t at = offset + i;
    const uint64_t word = SimRandom(stream_salt_ * 1'000'003 + at / 8).next() & kept;
    data[i] = static_cast<std::byte>(word >> (8 * (at % 8)));
  }
  return data;
}

Task<bool> Client::run(unsigned chores) {
  for (unsigned i = 0; i < chores && session_.goes_on(); ++i) {
    const Place place = random_place();
    bool went_on = true;
    if (session_.makes_many && random_.chance(80)) {
      if (!co_await make_small_files()) co_return false;
      continue;
    }
    switch (random_.below(30)) {
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
        if (random_.chance(40)) went_on = co_await keep_committing(place);
        break;
      case 17:
      case 22:
        went_on = co_await keep_log(place);
        break;
      case 23:
      case 25:
        went_on = co_await append_by_scripts(place);
        break;
      case 18:
      case 24:
        went_on = co_await change_attributes(place);
        break;
      case 19:
      case 20:
      case 21:
        went_on = co_await share(place);
        break;
      case 26:
      case 27:
        went_on = co_await take_over(place);
        break;
      default:
        went_on = co_await synchronize(place);
        break;
    }
    if (!went_on) co_return false;
  }
  co_return true;
}

// --- steps ----------------------------------------------------------------------------------------------------------

// Mostly as savers do.
Machine::Mode Client::random_mode() {
  return {.writes = true, .reads = random_.chance(30), .close_on_exec = random_.chance(50)};
}

bool Client::open_existing(const Place& place, OpenFile* out, const Machine::Mode& mode, bool is_settled) {
  Store& store = session_.store;
  Result<Store::Node> node = store.lookup(session_.directories[place.directory], place.name);
  if (!session_.good(node.status(), "lookup of " + place.path)) return false;
  Result<std::shared_ptr<File>> file = store.open_file(node->handle.get(), mode.writes);
  node->handle.reset();
  if (!session_.good(file.status(), "open of " + place.path)) return false;
  const uint64_t inode = node->attributes.st_ino;
  const std::shared_ptr<FileModel> model = session_.model.file(inode);
  if (model == nullptr || session_.model.inode_at(place.path) != inode)
    session_.fail(fmt::format("{} leads to inode {}, which is wrong", place.path, inode));
  else if (is_settled && static_cast<uint64_t>(node->attributes.st_size) != model->content().size() &&
           !machine_.has_failed(inode))
    session_.fail(
        fmt::format("{} shows a size of {}, it is {}", place.path, node->attributes.st_size, model->content().size()));
  if (!session_.failure.empty()) return false;
  *out = machine_.open(self_, *file, inode, session_.model.now(), mode);
  return true;
}

bool Client::create(const Place& place, OpenFile* out) {
  const Model::Operation operation = session_.model.begin({{place.path, Model::kUnknownNew}});
  Result<Store::Created> created = session_.store.create(session_.directories[place.directory], place.name, 0644);
  if (!session_.good(created.status(), "create of " + place.path)) return false;
  const uint64_t inode = created->node.attributes.st_ino;
  created->node.handle.reset();
  session_.model.done(operation, inode);
  session_.model.add_file(inode, {}, {.mode = created->node.attributes.st_mode & 07777, .tag = {}, .set_to = {}});
  Machine::Mode mode = random_mode();
  mode.is_new = true;
  *out = machine_.open(self_, created->file, inode, operation, mode);
  return true;
}

bool Client::open_or_create(const Place& place, OpenFile* out) {
  return exists(place) ? open_existing(place, out, random_mode()) : create(place, out);
}

Task<bool> Client::write(const OpenFile& file, uint64_t offset, size_t length) {
  Content data = make_data(length, offset);
  const bool ended = co_await machine_.write(self_, file, offset, std::move(data));
  co_return ended;
}

Task<bool> Client::write_sequentially(const OpenFile& file, uint64_t length) {
  uint64_t offset = 0;
  if (shares_content() && random_.chance(30)) stream_salt_ = random_.below(2);
  // Savers write in pieces of any size: headers of 64 bytes, tensors, whole requests.
  const uint64_t largest_piece = random_.chance(30) ? 5000 : random_.between(1000, 300'000);
  while (offset < length) {
    const uint64_t piece = std::min(length - offset, random_.chance(20) ? 64 : random_.between(1, largest_piece));
    if (!co_await write(file, offset, piece)) co_return false;
    offset += piece;
    if (random_.chance(3) && !co_await commit(file)) co_return false;
    if (random_.chance(4) && !co_await run_child(file)) co_return false;
    // Somebody's, in the middle of it.
    if (session_.synced_by_others && random_.chance(6) && !co_await sync_everything()) co_return false;
  }
  co_return true;
}

Task<bool> Client::truncate(const OpenFile& file, uint64_t size) {
  return machine_.truncate(self_, file, size);
}

Task<bool> Client::punch(const OpenFile& file, uint64_t offset, uint64_t length) {
  return machine_.punch(self_, file, offset, length);
}

Task<bool> Client::read_back(const OpenFile& file) {
  if (!session_.goes_on() || !co_await machine_.write_back(file->inode)) co_return false;
  const Content& expected = file->model->content();
  ReadCursor cursor;
  const bool random_access = random_.chance(30);
  uint64_t offset = 0;
  while (offset <= expected.size()) {
    const auto length = static_cast<uint32_t>(random_.between(1, 200'000));
    ReadCall call(session_.scheduler, *file->file, offset, length, random_.chance(80) ? &cursor : nullptr);
    call.start();
    if (!session_.good(co_await call, "read")) {
      co_return false;  // the client gives up here
    }
    const uint64_t end = std::min<uint64_t>(expected.size(), offset + length);
    if (call.data.size() != end - offset ||
        !std::equal(call.data.begin(), call.data.end(), expected.begin() + static_cast<ptrdiff_t>(offset))) {
      session_.fail(
          fmt::format("a read of {} bytes at {} of a file of {} (inode {}) gave other bytes than were written", length,
                      offset, expected.size(), file->inode));
      co_return false;
    }
    if (random_access && random_.chance(50)) break;
    offset = random_access ? random_.below(expected.size() + 1) : offset + length;
  }
  co_return true;
}

Task<bool> Client::commit(const OpenFile& file) {
  return machine_.fsync(file);
}

// The program goes on writing before its fsync has returned (another thread of it).
Task<bool> Client::commit_while_writing(const OpenFile& file) {
  if (!co_await machine_.write_back(file->inode)) co_return false;
  const Task<bool> sync = machine_.fsync(file);
  sync.handle().resume();
  bool went_on = true;
  for (uint64_t writes = random_.between(1, 4); went_on && writes > 0; --writes) {
    const uint64_t offset = random_.below(file->model->content().size() + 1);
    went_on = co_await write(file, offset, random_.between(1, 100'000));
  }
  while (!sync.done()) co_await machine_.sleep({});
  co_return went_on&& sync.result();
}

// The descriptor of who saves.
Task<bool> Client::close(const OpenFile& file) {
  bool went_on = true;
  if (!session_.commits_at_close() && random_.chance(40)) went_on = co_await commit(file);
  if (!went_on) co_return false;
  const bool ended = co_await machine_.close(self_, file);
  co_return ended;
}

// A subprocess: it inherits the descriptors, may become another program, and ends, in whatever way, having written
// nothing.
Task<bool> Client::run_child(const OpenFile& file) {
  Process child = machine_.fork(self_);
  if (random_.chance(60) && !co_await machine_.exec(child)) co_return false;
  if (random_.chance(20) && !child.table.empty() && !co_await machine_.close(child, file)) co_return false;
  const bool ended = co_await machine_.end(child, random_.chance(20));
  co_return ended;
}

// As a shell does for `program > file`, or dd for itself: the descriptor of open(2) is closed when there is a copy of it,
// before anything is written through that, maybe by a child.
Task<bool> Client::redirect(OpenFile file) {
  if (random_.chance(30)) {
    machine_.give(self_, file);
    if (!co_await machine_.close(self_, file) || !co_await write_sequentially(file, random_length())) co_return false;
    const bool ended = co_await close(file);
    co_return ended;
  }
  Process child = machine_.fork(self_);
  if (random_.chance(50)) {
    machine_.give(child, file);
    if (!co_await machine_.close(child, file)) co_return false;
  }
  if (!co_await machine_.close(self_, file)) co_return false;
  std::swap(self_, child);
  bool went_on = co_await write_sequentially(file, random_length());
  std::swap(self_, child);
  file.reset();
  if (went_on) went_on = co_await machine_.end(child, random_.chance(10));
  co_return went_on;
}

// The program is killed, and another takes its place.
Task<bool> Client::die() {
  const bool went_on = co_await machine_.end(self_, true);
  if (went_on) self_ = machine_.start();
  co_return went_on;
}

Task<bool> Client::rename(const Place& from, const Place& to, unsigned flags) {
  const uint64_t inode = session_.model.inode_at(from.path), replaced = session_.model.inode_at(to.path);
  // What takes the place of another file's content is committed first.
  const auto change = [this](const Place& place, uint64_t after, uint64_t before) {
    Model::Change result{place.path, after};
    if (after == Model::kAbsent) return result;
    const std::shared_ptr<FileModel> model = session_.model.file(after), gone = session_.model.file(before);
    const size_t version = model->may_show();
    machine_.may_be_committed(after);
    if (gone != nullptr && gone->has_committed_content(0)) result.oldest_version = version;
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

// --- chores ---------------------------------------------------------------------------------------------------------

// A saver, perhaps without pause.
Task<bool> Client::save(const Place& place) {
  for (uint64_t saves = random_.chance(20) ? random_.between(2, 4) : 1; saves > 0; --saves)
    if (!co_await save_once(place)) co_return false;
  co_return true;
}

// Create, or open with O_TRUNC, write, close.
Task<bool> Client::save_once(const Place& place) {
  OpenFile file;
  const bool replaces = exists(place);
  if (!open_or_create(place, &file)) co_return false;
  if (replaces && !co_await truncate(file, 0)) co_return false;
  if (random_.chance(15)) {
    const uint64_t inode = file->inode;
    const bool ended = co_await redirect(std::move(file));
    if (!ended || !machine_.has_failed(inode)) co_return ended;
    const bool works = co_await open_again(place);
    co_return works;
  }
  if (!co_await write_sequentially(file, random_length())) co_return false;
  if (random_.chance(20) && !co_await read_back(file)) co_return false;
  if (random_.chance(10)) {
    const bool ended = co_await die();
    co_return ended;
  }
  if (!co_await close(file)) co_return false;
  if (random_.chance(20) && !sync_directory(place.directory)) co_return false;
  co_return true;
}

// New files, as an archive is unpacked; now and then a name is in the way, or goes to another place.
Task<bool> Client::make_small_files() {
  constexpr unsigned kNames = 8;
  const auto some_place = [this] {
    Place place = random_place();
    place.name = fmt::format("c{}-m{}", number_, random_.below(kNames));
    place.path = session_.directory_names[place.directory] + "/" + place.name;
    return place;
  };
  for (uint64_t files = random_.between(1, 8); files > 0 && session_.goes_on(); --files) {
    const Place place = some_place(), other = some_place();
    if (exists(place)) {
      if (!random_.chance(30)) continue;
      const bool moves = random_.chance(50) && place.path != other.path;
      const bool went_on = moves ? co_await rename(place, other, 0) : co_await remove(place);
      if (!went_on) co_return false;
      if (random_.chance(50)) continue;
    }
    OpenFile file;
    if (exists(place)) continue;
    if (!create(place, &file)) co_return false;
    if (!co_await write_sequentially(file, random_.between(1, 7500))) co_return false;
    if (!co_await close(file)) co_return false;
    if (random_.chance(10) && !co_await append_small(place)) co_return false;
    if (random_.chance(5) && !co_await link_and_unlink(place)) co_return false;
    if (random_.chance(5) && !sync_directory(place.directory)) co_return false;
    if (random_.chance(10)) co_await machine_.sleep(std::chrono::milliseconds(random_.below(100)));
  }
  co_return true;
}

// Renames a temporary file over a name. Or both change places, named in any order, and what was there goes.
Task<bool> Client::publish(const Place& temporary, const Place& place) {
  if (!exists(place) || !random_.chance(20)) {
    const bool ended = co_await rename(temporary, place, 0);
    co_return ended;
  }
  const bool old_first = random_.chance(50);
  if (!co_await rename(old_first ? place : temporary, old_first ? temporary : place, RENAME_EXCHANGE)) co_return false;
  const bool ended = co_await remove(temporary);
  co_return ended;
}

// The careful saver: a temporary file that is renamed over, before or after it is closed.
Task<bool> Client::save_and_rename(const Place& place) {
  Place temporary = place;
  if (random_.chance(30)) temporary.directory = random_.below(session_.directories.size());
  do {  // those of an earlier mount may still be there
    temporary.name = fmt::format("c{}-tmp{}", number_, temporary_count_++);
    temporary.path = session_.directory_names[temporary.directory] + "/" + temporary.name;
  } while (exists(temporary));
  OpenFile file;
  if (!create(temporary, &file)) co_return false;
  if (!co_await write_sequentially(file, random_length())) co_return false;
  if (random_.chance(50) && !co_await commit(file)) co_return false;
  const bool rename_first = random_.chance(40);
  if (rename_first && !co_await publish(temporary, place)) co_return false;
  if (!co_await close(file)) co_return false;
  file.reset();
  // Somebody looks at it meanwhile, and has it open first.
  OpenFile reader;
  if (!rename_first && random_.chance(30) && !open_existing(temporary, &reader, {.writes = false, .reads = true}))
    co_return false;
  if (!rename_first && !co_await publish(temporary, place)) co_return false;
  if (random_.chance(40) && !sync_directory(place.directory)) co_return false;
  if (reader == nullptr) co_return true;
  if (random_.chance(40) && !co_await commit(reader)) co_return false;
  const bool ended = co_await machine_.close(self_, reader);
  co_return ended;
}

// A program that modifies its file in place and calls fsync.
Task<bool> Client::change_in_place(const Place& place) {
  OpenFile file;
  if (!open_or_create(place, &file)) co_return false;
  for (uint64_t writes = random_.between(1, 8); writes > 0; --writes) {
    const uint64_t offset = random_.below(std::max<uint64_t>(file->model->content().size(), 1) + random_.below(5000));
    const uint64_t room = session_.largest_file - std::min(offset, session_.largest_file);
    const uint64_t length = std::min(room, random_.between(1, random_.chance(70) ? 3000 : 150'000));
    if (length > 0 && !co_await write(file, offset, length)) co_return false;
    if (random_.chance(25) && !co_await commit(file)) co_return false;
    if (random_.chance(15) && !co_await commit_while_writing(file)) co_return false;
    if (random_.chance(20) && !co_await read_back(file)) co_return false;
  }
  const bool ended = co_await close(file);
  co_return ended;
}

Task<bool> Client::resize(const Place& place) {
  OpenFile file;
  if (!open_or_create(place, &file)) co_return false;
  for (uint64_t changes = random_.between(1, 5); changes > 0; --changes) {
    const uint64_t size = file->model->content().size();
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
    if (random_.chance(30) && !co_await commit(file)) co_return false;
    if (random_.chance(30) && !co_await read_back(file)) co_return false;
  }
  const bool ended = co_await close(file);
  co_return ended;
}

// A log: small appends, each with its fsync, from inline content to chunks.
Task<bool> Client::append_small(const Place& place) {
  OpenFile file;
  if (!open_or_create(place, &file)) co_return false;
  const uint64_t largest_piece = random_.chance(50) ? 300 : 9000;
  for (uint64_t appends = random_.between(2, 12); appends > 0; --appends) {
    if (file->model->content().size() + largest_piece > session_.largest_file) break;
    if (!co_await write(file, file->model->content().size(), random_.between(1, largest_piece))) co_return false;
    if (random_.chance(70) && !co_await commit(file)) co_return false;
  }
  const bool ended = co_await close(file);
  co_return ended;
}

// A log to which each of several short-lived programs appends.
Task<bool> Client::append_by_scripts(const Place& place) {
  for (uint64_t scripts = random_.between(2, 10); scripts > 0; --scripts) {
    OpenFile file;
    Machine::Mode mode = random_mode();
    mode.appends = true;
    if (exists(place) ? !open_existing(place, &file, mode) : !create(place, &file)) co_return false;
    const uint64_t size = file->model->content().size();
    const uint64_t largest_piece = random_.chance(50) ? 300 : 9000;
    const bool is_full = size + largest_piece > session_.largest_file;
    if (is_full && !co_await truncate(file, 0)) co_return false;  // a new log is begun
    if (!co_await write(file, is_full ? 0 : size, random_.between(1, largest_piece))) co_return false;
    if (random_.chance(10) && !co_await commit(file)) co_return false;
    if (!co_await machine_.close(self_, file)) co_return false;
  }
  co_return true;
}

// O_TMPFILE: the file has no name until it is whole.
Task<bool> Client::save_unnamed(const Place& place) {
  if (exists(place)) co_return true;
  Store& store = session_.store;
  const Handle directory = session_.directories[place.directory];
  Result<Store::Created> created = store.create_unnamed(directory, 0600);
  if (!session_.good(created.status(), "create of an unnamed file")) co_return false;
  const NodeHandle node = std::move(created->node.handle);
  const uint64_t inode = created->node.attributes.st_ino;
  session_.model.add_file(inode, {}, {.mode = created->node.attributes.st_mode & 07777, .tag = {}, .set_to = {}});
  const OpenFile file =
      machine_.open(self_, created->file, inode, session_.model.now(), {.reads = random_.chance(30), .is_new = true});
  created->file.reset();
  bool went_on = co_await write_sequentially(file, random_length());
  if (went_on && random_.chance(30)) went_on = co_await commit(file);
  if (went_on) {
    const Model::Operation operation = session_.model.begin({{place.path, inode}}, true);
    went_on = session_.good(store.link(node.get(), directory, place.name), "link of an unnamed file");
    if (went_on) session_.model.done(operation);
  }
  if (!went_on) co_return false;
  const bool ended = co_await close(file);
  co_return ended;
}

// Many small commits of one file: its sidecar's log is compacted on the way, soon where it holds the content.
Task<bool> Client::keep_committing(const Place& place) {
  OpenFile file;
  if (!open_or_create(place, &file)) co_return false;
  const bool is_small = random_.chance(80);
  if (is_small && !co_await truncate(file, 0)) co_return false;
  if (!co_await write(file, 0, random_.between(1, is_small ? kInlineSizeMax : 2 * kChunk))) co_return false;
  const uint64_t most = is_small ? 60 : 700;
  for (uint64_t commits = random_.between(most / 7, most); commits > 0; --commits) {
    if (!co_await write(file, random_.below(file->model->content().size()), random_.between(1, 20))) co_return false;
    if (!co_await commit(file)) co_return false;
  }
  const bool ended = co_await close(file);
  co_return ended;
}

Task<bool> Client::exchange(const Place& place) {
  const Place other = random_place();
  if (!exists(place) || !exists(other)) co_return true;
  if (session_.model.inode_at(place.path) == session_.model.inode_at(other.path)) co_return true;
  if (!co_await rename(place, other, RENAME_EXCHANGE)) co_return false;
  if (random_.chance(40) && !sync_directory(place.directory)) co_return false;
  co_return true;
}

Task<bool> Client::link_and_unlink(const Place& place) {
  const uint64_t inode = session_.model.inode_at(place.path);
  const Place other = random_place();
  if (inode == Model::kAbsent || exists(other)) co_return true;
  Store& store = session_.store;
  Result<Store::Node> node = store.lookup(session_.directories[place.directory], place.name);
  if (!session_.good(node.status(), "lookup of " + place.path)) co_return false;
  const Model::Operation operation = session_.model.begin({{other.path, inode}});
  const Status linked = store.link(node->handle.get(), session_.directories[other.directory], other.name);
  node->handle.reset();
  if (!session_.good(linked, "link of " + other.path)) co_return false;
  session_.model.done(operation);
  if (random_.chance(50) && !sync_directory(other.directory)) co_return false;
  if (random_.chance(50)) {
    const bool ended = co_await remove(place);
    co_return ended;
  }
  co_return true;
}

// Sometimes while the file is open and goes on being written to.
Task<bool> Client::remove(const Place& place) {
  if (!exists(place)) co_return true;
  OpenFile file;
  const bool keep_open = random_.chance(40);
  if (keep_open && !open_existing(place, &file, random_mode())) co_return false;
  const Model::Operation operation = session_.model.begin({{place.path, Model::kAbsent}});
  if (!session_.good(session_.store.unlink(session_.directories[place.directory], place.name),
                     "unlink of " + place.path))
    co_return false;
  session_.model.done(operation);
  if (keep_open) {
    if (!co_await write(file, random_.below(file->model->content().size() + 1), random_.between(1, 100'000)))
      co_return false;
    if (!co_await read_back(file)) co_return false;
    if (!co_await close(file)) co_return false;
  }
  if (random_.chance(40) && !sync_directory(place.directory)) co_return false;
  co_return true;
}

// It fails while a file that failed is open, or held, which may be over when it ends; `all`: it did not.
Task<bool> Client::sync_everything(bool* all) {
  using Unfinished = ControlRequest::Unfinished;
  const bool takes_all = session_.planted == PlantedCall::kSyncCommits;
  SyncAllCall call(session_.scheduler, session_.store,
                   takes_all ? Unfinished::kCommitted : Unfinished::kTricklesCommitted);
  const bool had_failures = machine_.has_failures();
  const uint64_t failures = machine_.failures();
  call.start();
  const Status status = co_await call;
  const auto has_failed = [&] { return had_failures || machine_.has_failures() || machine_.failures() != failures; };
  // The close that made the file fail may be told later than this.
  for (int i = 0; i < 100 && !status.is_ok() && !has_failed() && !session_.world.is_off(); ++i)
    co_await machine_.sleep({});
  const bool may_fail = has_failed() && !session_.world.is_off();
  if (all != nullptr) *all = status.is_ok();
  co_return may_fail || session_.good(status, "sync of everything");
}

Task<bool> Client::synchronize(const Place& place) {
  if (random_.chance(session_.synced_by_others ? 30 : 60)) co_return sync_directory(place.directory);
  if (!session_.synced_by_others) co_return true;
  const Model::Operation names = session_.model.now();
  std::vector<std::pair<std::shared_ptr<FileModel>, size_t>> mine;
  for (const auto& [path, inode] : session_.model.names()) {
    if (inode == Model::kAbsent || !path.substr(path.find('/')).starts_with(fmt::format("/c{}-", number_))) continue;
    const std::shared_ptr<FileModel> file = session_.model.file(inode);
    mine.emplace_back(file, file->may_show());
  }
  bool all = false;
  if (!co_await sync_everything(&all)) co_return false;
  if (!all) co_return true;
  for (const auto& [file, version] : mine) file->acknowledge(version);
  session_.model.all_synced(names);
  co_return true;
}

// A log that stays open: lines, and times without any. Nobody closes it for its content.
Task<bool> Client::keep_log(const Place& place) {
  OpenFile file;
  Machine::Mode mode = random_mode();
  mode.appends = random_.chance(70);
  if (exists(place) ? !open_existing(place, &file, mode) : !create(place, &file)) co_return false;
  const unsigned idle = std::max(session_.options.commit_idle_ms, 1U);
  for (uint64_t lines = random_.between(2, 12); lines > 0; --lines) {
    if (file->model->content().size() + 2000 > session_.largest_file) break;
    if (!co_await write(file, file->model->content().size(), random_.between(1, 2000))) co_return false;
    if (random_.chance(30) && !co_await machine_.sleep(std::chrono::milliseconds(random_.below(2 * idle))))
      co_return false;
    if (random_.chance(25) && !co_await machine_.wait_for_trickle(file)) co_return false;
    if (random_.chance(10) && !co_await run_child(file)) co_return false;
  }
  if (random_.chance(20)) {
    const bool ended = co_await die();
    co_return ended;
  }
  const bool ended = co_await close(file);
  co_return ended;
}

// chmod, chown, utimensat, setxattr, rename and link, with fsync or without. The file may be open, for reading only, or
// nobody has it open before.
Task<bool> Client::change_attributes(const Place& place) {
  if (!exists(place)) co_return true;
  Store& store = session_.store;
  for (uint64_t changes = random_.between(1, 4); changes > 0; --changes) {
    if (!session_.goes_on()) co_return false;
    OpenFile file;
    if (random_.chance(70) && !open_existing(place, &file, {.writes = random_.chance(50)})) co_return false;
    Result<Store::Node> node = store.lookup(session_.directories[place.directory], place.name);
    if (!session_.good(node.status(), "lookup of " + place.path)) co_return false;
    FileModel& model = *session_.model.file(node->attributes.st_ino);
    Attributes after = model.attributes();
    const std::string tag = fmt::format("{}", random_.below(1000));
    Status status;
    switch (random_.below(4)) {
      case 0:
        after.mode = 0400 | static_cast<mode_t>(random_.below(0400));
        model.set_attributes(after);
        status = store.chmod(node->handle.get(), after.mode);
        break;
      case 1:
        after.user = static_cast<uid_t>(random_.below(1000));
        model.set_attributes(after);
        status = store.chown(node->handle.get(), after.user, static_cast<gid_t>(-1));
        break;
      case 2:
        after.tag = tag;
        model.set_attributes(after);
        status = store.storage().set_xattr(node->handle.get(), kTagName, std::as_bytes(std::span(tag)), 0);
        break;
      default:
        after.set_to = timespec{static_cast<time_t>(random_.below(1'000'000)), 0};
        model.set_attributes(after);
        const struct timespec times[2] = {{0, UTIME_OMIT}, *after.set_to};
        status = store.set_times(node->handle.get(), times).status();
        break;
    }
    node->handle.reset();
    if (!session_.good(status, "change of attributes")) co_return false;
    if (random_.chance(30) && !co_await link_and_unlink(place)) co_return false;
    if (file == nullptr) {
      if (random_.chance(50) && exists(place) && !co_await sync_by_reader(place)) co_return false;
      if (!exists(place)) co_return true;
      continue;
    }
    if (random_.chance(70) && !co_await commit(file)) co_return false;
    if (!co_await machine_.close(self_, file)) co_return false;
    if (!exists(place)) co_return true;
  }
  co_return true;
}

Task<bool> Client::sync_by_reader(const Place& place) {
  OpenFile file;
  if (!open_existing(place, &file, {.writes = false, .reads = true})) co_return false;
  if (!co_await commit(file)) co_return false;
  const bool ended = co_await machine_.close(self_, file);
  co_return ended;
}

// --- several processes with one file --------------------------------------------------------------------------------

// All at random: who opens, inherits, is given, writes, maps, syncs, closes and dies.
Task<bool> Client::share(const Place& place) {
  OpenFile first;
  if (!open_or_create(place, &first)) co_return false;
  const uint64_t inode = first->inode;
  std::vector<Process> processes;
  processes.push_back(std::move(self_));
  self_ = machine_.start();
  first.reset();
  unsigned forks = kForksMax;
  for (uint64_t steps = random_.between(3, 25); steps > 0 && !processes.empty(); --steps) {
    if (!co_await share_once(place, processes, inode, forks)) co_return false;
    if (machine_.has_failed(inode)) break;
  }
  while (!processes.empty()) {
    const size_t index = random_.below(processes.size());
    const bool is_killed = random_.chance(10);
    if (!co_await machine_.end(processes[index], is_killed)) co_return false;
    processes.erase(processes.begin() + static_cast<ptrdiff_t>(index));
  }
  if (machine_.has_failed(inode)) {
    const bool ended = co_await open_again(place);
    co_return ended;
  }
  co_return true;
}

Task<bool> Client::share_once(const Place& place, std::vector<Process>& processes, uint64_t inode, unsigned& forks) {
  const size_t index = random_.below(processes.size());
  Process& process = processes[index];
  const auto may_write = [](const Process::Descriptor& descriptor) {
    return descriptor.description->writer != nullptr;
  };
  std::vector<OpenFile> writers;
  for (const Process::Descriptor& descriptor : process.table)
    if (may_write(descriptor)) writers.push_back(descriptor.description);
  const OpenFile writer = writers.empty() ? nullptr : writers[random_.below(writers.size())];
  const uint64_t size = session_.model.file(inode)->content().size();
  const uint64_t offset = random_.below(size + 1);
  const uint64_t length = random_.chance(50) ? random_.between(1, 3000) : random_.between(1, 150'000);
  const unsigned choice = static_cast<unsigned>(random_.below(20));
  if (choice < 2 && forks > 0) {
    --forks;
    Process child = machine_.fork(process);
    const bool execs = random_.chance(50);
    processes.push_back(std::move(child));
    if (!execs) co_return true;
    const bool ended = co_await machine_.exec(processes.back());
    co_return ended;
  }
  if (choice == 2 && process.table.size() < 4 && exists(place) && session_.model.inode_at(place.path) == inode) {
    OpenFile file;
    std::swap(self_, process);
    Machine::Mode mode = random_mode();
    mode.writes = random_.chance(60);
    mode.appends = random_.chance(20);
    const bool is_open = open_existing(place, &file, mode);
    std::swap(self_, process);
    if (!is_open) co_return false;
    if (mode.writes && random_.chance(20)) {
      const bool ended = co_await machine_.truncate(process, file, 0);
      co_return ended;
    }
    co_return true;
  }
  if (choice == 3 && writer != nullptr) {  // dup, or passed on
    machine_.give(processes[random_.below(processes.size())], writer, random_.chance(30));
    co_return true;
  }
  if (choice == 4 && processes.size() > 1) {
    const bool is_killed = random_.chance(50);
    if (!co_await machine_.end(process, is_killed)) co_return false;
    processes.erase(processes.begin() + static_cast<ptrdiff_t>(index));
    co_return true;
  }
  if (choice < 8 && !process.table.empty() && process.table.size() + processes.size() > 2) {
    const OpenFile file = process.table[random_.below(process.table.size())].description;
    const bool ended = co_await machine_.close(process, file);
    co_return ended;
  }
  if (choice == 8 && !process.table.empty()) {
    const OpenFile file = process.table[random_.below(process.table.size())].description;
    const bool ended = co_await machine_.fsync(file);
    co_return ended;
  }
  if (choice < 12 && writer != nullptr && writer->may_map()) {
    if (process.mappings.empty()) machine_.map(process, writer);
    if (size > 0) machine_.store(process.mappings.front(), random_.below(size), make_data(random_.between(1, 5000)));
    if (random_.chance(30)) {
      const bool ended = co_await machine_.write_back(inode);
      co_return ended;
    }
    if (random_.chance(30)) {
      const bool ended = co_await machine_.unmap(process, process.mappings.front());
      co_return ended;
    }
    co_return true;
  }
  if (writer == nullptr || size + length > session_.largest_file) co_return true;
  Content data = make_data(length);
  if (choice < 14 && writer->descriptors > 1) {
    const bool ended = co_await machine_.close_beside_write(process, writer, offset, std::move(data));
    co_return ended;
  }
  if (choice == 14) {
    const bool ended = co_await machine_.truncate(process, writer, random_.chance(60) ? 0 : offset);
    co_return ended;
  }
  if (choice == 15) {
    const bool ended = co_await read_back(writer);
    co_return ended;
  }
  const uint64_t at = writer->appends() ? size : offset;
  const bool ended = co_await machine_.write(process, writer, at, std::move(data));
  co_return ended;
}

// A saver is killed in the middle of a replacement, and another program goes on with the file at that very moment.
Task<bool> Client::take_over(const Place& place) {
  if (!exists(place) && !co_await save_once(place)) co_return false;
  OpenFile file;
  if (!open_existing(place, &file, random_mode())) co_return false;
  const uint64_t inode = file->inode, old_size = file->model->content().size();
  Process next = machine_.start();
  const Machine::Mode mode = random_mode();
  OpenFile other;
  if (random_.chance(50)) {
    std::swap(self_, next);
    const bool is_open = open_existing(place, &other, mode);
    std::swap(self_, next);
    if (!is_open) co_return false;
  }
  // Changes of its own that nobody has committed: then both are given up.
  if (other != nullptr && random_.chance(10) &&
      !co_await machine_.write(next, other, 0, make_data(random_.between(1, 5000))))
    co_return false;
  if (random_.chance(20) && !co_await write(file, random_.below(old_size + 1), random_.between(1, 100'000)))
    co_return false;
  if (!co_await truncate(file, 0)) co_return false;
  if (!co_await write_sequentially(file, random_length())) co_return false;
  if (random_.chance(30)) machine_.give(self_, file);
  Process dying = std::move(self_);
  self_ = std::move(next);
  next = Process();
  Beside now{.process = self_,
             .file = std::move(other),
             .open = [&](OpenFile* out) { return open_existing(place, out, mode, false); },
             .comes_first = random_.chance(25),
             .replaces = random_.chance(40),
             .offset = 0,
             .data = make_data(random_.chance(80) ? random_.between(1, random_.chance(50) ? 5000 : 150'000) : 0),
             .status = {}};
  if (!now.replaces) now.offset = random_.below(std::max(old_size, file->model->content().size()) + 1);
  file.reset();
  if (!co_await machine_.end(dying, true, &now)) co_return false;
  file = std::move(now.file);
  if (file == nullptr && !machine_.has_failed(inode) && !open_existing(place, &file, mode)) co_return false;
  for (uint64_t writes = random_.below(4); writes > 0 && !machine_.has_failed(inode); --writes) {
    if (!co_await write(file, random_.below(file->model->content().size() + 1), random_.between(1, 70'000)))
      co_return false;
    if (random_.chance(30) && !co_await read_back(file)) co_return false;
    if (random_.chance(30) && !co_await commit(file)) co_return false;
  }
  file.reset();
  const bool is_killed = random_.chance(20);
  if (!co_await machine_.end(self_, is_killed)) co_return false;
  self_ = machine_.start();
  if (!machine_.has_failed(inode)) co_return true;
  const bool ended = co_await open_again(place);
  co_return ended;
}

// One of several that replaced it was killed, and the others got an error: it shows its last committed content once
// what is on the way to the drives has ended.
Task<bool> Client::open_again(const Place& place) {
  for (;;) {
    if (!exists(place)) co_return true;
    OpenFile file;
    if (!open_existing(place, &file, {.writes = false, .reads = true})) co_return false;
    const bool works = file->file->error().is_ok();
    Content seen;
    if (works && !co_await machine_.read_all(file, &seen)) co_return false;
    if (works && !file->model->allows(seen))
      session_.fail(fmt::format("{} holds {} bytes after one of its savers was killed; versions: {}", place.path,
                                seen.size(), file->model->describe_versions()));
    if (works) {
      file->model->coming(std::move(seen), true);
      file->model->settle();
      machine_.reopened(file->inode);
    }
    const uint64_t inode = file->inode;
    if (!co_await machine_.close(self_, file)) co_return false;
    file.reset();
    if (works) co_return session_.failure.empty();
    // Who holds a version of it has it open as well.
    if (session_.copier != nullptr) session_.copier->let_go_of(inode);
    if (!co_await machine_.sleep(std::chrono::milliseconds(1))) co_return false;
  }
}

}  // namespace fpfs::crash
