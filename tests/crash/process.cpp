#include "tests/crash/process.h"

#include <algorithm>

#include <fmt/format.h>

namespace fpfs::crash {

namespace {

constexpr uint64_t kOwners = 6;
// So many looks at a trickle that is due: commits of others may be in its way.
constexpr unsigned kLooksMax = 600;

// Resumes its client after a while.
struct Pause {
  SimEnvironment& world;
  Scheduler& scheduler;
  std::chrono::milliseconds time;
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> client) {
    const auto wake = [&waiting = scheduler, client] { waiting.ready(client); };
    if (time.count() == 0)
      world.executor().post(wake);
    else
      world.executor().post_after(time, wake);
  }
  void await_resume() {}
};

}  // namespace

// --- descriptions ---------------------------------------------------------------------------------------------------

Description::~Description() {
  if (machine != nullptr) machine->forget(*this);
}

Machine::~Machine() {
  for (const OpenFile& file : open_) forget(*file);
}

// Without a word to the engine but that it is gone: the process of the mount is.
void Machine::forget(Description& file) {
  if (file.machine == nullptr) return;
  file.machine = nullptr;
  std::erase(state_of(file.inode).open, &file);
  if (file.writer != nullptr) (void)file.file->detach(*file.writer);
}

OpenFile Machine::open(Process& process, std::shared_ptr<File> file, uint64_t inode, Model::Operation opened_at,
                       const Mode& mode) {
  auto opened = std::make_shared<Description>();
  opened->machine = this;
  opened->model = session_.model.file(inode);
  opened->inode = inode;
  opened->opened_at = opened_at;
  std::unique_ptr<State>& state = states_[inode];
  if (state == nullptr) {
    state = std::make_unique<State>();
    state->covered = state->committed = opened->model->last();
  }
  if (mode.writes) {
    Writer::Description description;
    description.opener.process = process.number;
    description.may_map = mode.reads;
    description.appends = mode.appends;
    description.is_new = mode.is_new;
    opened->writer = std::make_unique<Writer>(description);
    file->attach(*opened->writer);
    // As choose_caching() does (fs/operations/open.cpp).
    const auto maps = [](const Description* other) { return other->may_map(); };
    opened->is_cached = mode.reads || std::any_of(state->open.begin(), state->open.end(), maps);
  }
  opened->file = std::move(file);
  state->open.push_back(opened.get());
  open_.insert(opened);
  if (mode.is_new) {
    opened->received = 1;
    coming(*opened, {}, true);
    settle(*opened, process.number);
  }
  give(process, opened, mode.close_on_exec);
  return opened;
}

// --- processes ------------------------------------------------------------------------------------------------------

Process Machine::start() {
  Process process;
  process.number = next_process_++;
  do process.owner = 1 + session_.world.random().below(kOwners * (1 + owners_.size()));
  while (!owners_.insert(process.owner).second);
  return process;
}

Process Machine::fork(const Process& parent) {
  Process child = start();
  parents_[child.number] = parent.number;
  for (const Process::Descriptor& descriptor : parent.table)
    give(child, descriptor.description, descriptor.close_on_exec);
  for (const OpenFile& file : parent.mappings) map(child, file);
  return child;
}

void Machine::give(Process& process, const OpenFile& file, bool close_on_exec) {
  ++file->descriptors;
  file->holders.insert(process.number);
  process.table.push_back({file, close_on_exec});
}

Task<bool> Machine::exec(Process& process) {
  bool went_on = true;
  while (went_on && !process.mappings.empty()) went_on = co_await unmap(process, process.mappings.back());
  for (size_t i = process.table.size(); went_on && i-- > 0;)
    if (process.table[i].close_on_exec) went_on = co_await close_at(process, i, false, nullptr);
  co_return went_on;
}

Task<bool> Machine::end(Process& process, bool is_killed, Beside* beside) {
  bool went_on = true;
  while (went_on && !process.mappings.empty()) went_on = co_await unmap(process, process.mappings.back());
  while (went_on && !process.table.empty()) went_on = co_await close_at(process, 0, is_killed, beside);
  if (!went_on) co_return false;
  owners_.erase(process.owner);
  parents_.erase(process.number);
  std::erase_if(parents_, [&process](const auto& entry) { return entry.second == process.number; });
  co_return true;
}

Task<bool> Machine::close(Process& process, const OpenFile& file) {
  const auto same = [&file](const Process::Descriptor& descriptor) { return descriptor.description == file; };
  const auto found = std::find_if(process.table.begin(), process.table.end(), same);
  FPFS_CHECK(found != process.table.end(), "a descriptor is closed once");
  return close_at(process, static_cast<size_t>(found - process.table.begin()), false, nullptr);
}

Task<bool> Machine::close_at(Process& process, size_t index, bool dies, Beside* beside) {
  if (!session_.goes_on()) co_return false;
  const OpenFile file = process.table[index].description;
  process.table.erase(process.table.begin() + static_cast<ptrdiff_t>(index));
  --file->descriptors;
  file->holders.erase(file->holders.find(process.number));
  const bool flushed = co_await flush(process, file, dies, beside);
  if (session_.world.is_off()) co_return false;
  const bool is_released = co_await release(file);
  co_return is_released&& flushed;
}

// --- closing --------------------------------------------------------------------------------------------------------

// A handle for reading sends none.
Task<bool> Machine::flush(Process& process, const OpenFile& file, bool dies, Beside* beside) {
  bool went_on = true;
  if (file->writer == nullptr) co_return went_on;
  went_on = co_await write_back(file->inode);
  if (!went_on) co_return false;
  if (dies && file->file->is_replacing())
    went_on = co_await flush_killed(process, file, beside);
  else if (is_to_come(process, file))
    went_on = co_await leave_alone(file);
  else
    went_on = co_await flush_and_commit(process, file);
  co_return went_on;
}

// Of a close that ends nothing. Nothing may come of it.
Task<bool> Machine::leave_alone(const OpenFile& file) {
  Status status = file->file->error();
  if (session_.planted == PlantedCall::kEmptyingCommits) {
    ControlCall call(session_.scheduler, *file->file, ControlRequest::Kind::kClose);
    call.start();
    status = co_await call;
  }
  co_return good(status, *file, "close of a copy") || has_failed(file->inode);
}

// As flush of the mount asks (fs/operations/sync.cpp): the closer has emptied content that is committed and no more, and
// another descriptor is to bring the new one, its own or a descendant's.
bool Machine::is_to_come(const Process& process, const OpenFile& file) {
  const State& state = state_of(file->inode);
  const Origin closer{file->writer.get(), {process.owner, process.number}, false};
  const bool only_emptied = file->file->is_replacing() && file->file->has_only_emptied(closer);
  const auto own = file->changes.find(process.number), cut = file->emptied.find(process.number);
  const bool for_certain = own != file->changes.end() && cut != file->emptied.end() && own->second == cut->second &&
                           cut->second > state.covered && replaces_for_certain(state, *file->model) &&
                           !(state.mapped.has_value() && *state.mapped > state.committed);
  if (for_certain && !only_emptied && !has_failed(file->inode))
    session_.fail(fmt::format("inode {}: who has only emptied it is taken for one who wrote", file->inode));
  const auto writes = [](const Description* other) { return other->writer != nullptr; };
  if (!only_emptied || std::count_if(state.open.begin(), state.open.end(), writes) != 1) return false;
  const auto descends = [this, &process](uint32_t number) {
    while (number != process.number) {
      const auto parent = parents_.find(number);
      if (parent == parents_.end()) return false;
      number = parent->second;
    }
    return true;
  };
  const bool is_held = std::any_of(file->holders.begin(), file->holders.end(), descends);
  return is_held && !session_.world.random().chance(5);  // /proc does not always tell in time
}

Task<bool> Machine::flush_and_commit(Process& process, const OpenFile& file) {
  State& state = state_of(file->inode);
  FileModel& model = *file->model;
  const auto own = file->changes.find(process.number);
  const bool wrote = own != file->changes.end() && own->second > state.committed;
  const bool is_opener = file->writer->description().opener.process == process.number;
  const bool mapped = state.mapped.has_value() && *state.mapped > state.committed && file->may_map();
  // What this close makes durable for certain, and what it may end.
  size_t covers = wrote ? own->second : 0;
  // What it wrote may have been committed meanwhile: then the pages are no business of it.
  const bool wrote_since = wrote && own->second > state.covered;
  if (mapped && (is_opener || wrote_since)) covers = std::max(covers, *state.mapped);
  const bool may_end =
      covers > 0 || file->under_way[process.number] > 0 || (mapped && (is_opener || own != file->changes.end()));
  bool is_alone = true;
  for (const Description* other : state.open)
    for (const auto& [number, version] : other->changes)
      is_alone &= version <= state.committed || (other == file.get() && number == process.number);
  const Model::Operation names = session_.model.now();
  if (may_end) {
    model.may_show();
    commit_begins(state, model);
  }
  const Origin origin{file->writer.get(), {process.owner, process.number}, false};
  if (!session_.commits_at_close()) {
    file->file->closed_by_writer(origin);
    if (session_.planted == PlantedCall::kBackgroundCommits)
      session_.world.executor().post_after(std::chrono::milliseconds(session_.options.background_commit_ms),
                                           [closed = std::weak_ptr<File>(file->file)] {
                                             if (const auto still_open = closed.lock()) commit_now(still_open);
                                           });
    co_return good(file->file->error(), *file, "close");
  }
  Status status;
  const bool skips = session_.planted == PlantedCall::kReceivedIsTaken && file->received == file->received_at_close;
  file->received_at_close = file->received;
  if (!skips) {
    ControlCall call(session_.scheduler, *file->file, ControlRequest::Kind::kClose);
    if (session_.planted != PlantedCall::kAnyCloseCommits) call.request.origin = origin;
    call.start();
    status = co_await call;
  }
  if (!good(status, *file, "close")) co_return has_failed(file->inode);
  if (covers == 0 || !session_.model.has_name(file->inode)) co_return true;
  committed(*file, covers);
  // Names that it got before it was opened are the business of who gave them.
  if (is_alone) session_.model.file_names_synced(file->inode, file->opened_at, names, false);
  co_return true;
}

Task<bool> Machine::release(const OpenFile& file) {
  if (file->descriptors > 0 || file->mappings > 0 || file->machine == nullptr) co_return true;
  State& state = state_of(file->inode);
  file->machine = nullptr;
  open_.erase(file);
  std::erase(state.open, file.get());
  if (file->writer == nullptr) co_return true;
  const auto is_new = [&state](const auto& change) { return change.second > state.committed; };
  if (std::any_of(file->changes.begin(), file->changes.end(), is_new) ||
      (file->may_map() && state.mapped.has_value() && *state.mapped > state.committed)) {
    file->model->may_show();
    commit_begins(state, *file->model);
  }
  if (!file->file->detach(*file->writer)) co_return true;
  if (!session_.commits_at_close()) {
    file->file->closed_by_writer();
    co_return true;
  }
  ControlCall call(session_.scheduler, *file->file, ControlRequest::Kind::kClose);
  call.request.unfinished = ControlRequest::Unfinished::kLeftAlone;
  call.start();
  co_return good(co_await call, *file, "the end of an open file") || has_failed(file->inode);
}

// Commits that nobody asked for, of planted mistakes.
void Machine::commit_now(const std::shared_ptr<File>& file) {
  struct Job {
    ControlRequest request;
    std::shared_ptr<File> file;
  };
  auto* job = new Job{{}, file};
  job->request.owner = job;
  job->request.complete = [](ControlRequest& request, const Status&) { delete static_cast<Job*>(request.owner); };
  file->control(job->request);
}

// --- writing --------------------------------------------------------------------------------------------------------

bool Machine::good(const Status& status, const Description& file, const std::string& what) {
  if (has_failed(file.inode)) return status.is_ok();
  return session_.good(status, what);
}

Origin Machine::origin_of_write(const Process& process, const Description& file) {
  const Actor actor = file.is_cached ? Actor{0, process.number} : Actor{process.owner, 0};
  return {file.writer.get(), actor, false};
}

std::unique_ptr<WriteUnderWay> Machine::begin_write(Process& process, const OpenFile& file, uint64_t offset,
                                                    Content data) {
  auto write = std::make_unique<WriteUnderWay>(session_.scheduler, file, std::move(data), offset);
  Content after = file->model->content();
  after.resize(std::max<size_t>(after.size(), offset + write->data.size()));
  std::copy(write->data.begin(), write->data.end(), after.begin() + static_cast<ptrdiff_t>(offset));
  // Shorter ones than a chunk: what they are is known when they were answered.
  const bool may_be_trickle = file->appends() || (!file->is_stream && write->data.size() <= kChunk);
  write->version = coming(*file, std::move(after), may_be_trickle);
  write->process = process.number;
  write->began_ns = now_ns();
  write->call.request.origin = origin_of_write(process, *file);
  ++file->received;
  ++file->under_way[process.number];
  write->call.start();
  return write;
}

Task<bool> Machine::end_write(WriteUnderWay& write) {
  Description& file = *write.file;
  const Status status = co_await write.call;
  --file.under_way[write.process];
  if (!good(status, file, "write")) {
    if (!session_.world.is_off() && !has_failed(file.inode)) file.model->forget();  // a part of it may be there
    co_return false;
  }
  settle(file, write.process);
  note_written(write);
  if (session_.planted == PlantedCall::kStreamsCommitted && session_.world.random().chance(5)) commit_now(file.file);
  co_return true;
}

Task<bool> Machine::write(Process& process, const OpenFile& file, uint64_t offset, Content&& data) {
  if (!session_.goes_on() || !co_await write_back(file->inode)) co_return false;
  const std::unique_ptr<WriteUnderWay> write = begin_write(process, file, offset, std::move(data));
  const bool ended = co_await end_write(*write);
  co_return ended;
}

Task<bool> Machine::close_beside_write(Process& process, const OpenFile& file, uint64_t offset, Content&& data) {
  if (!session_.goes_on() || !co_await write_back(file->inode)) co_return false;
  State& state = state_of(file->inode);
  file->model->may_show();
  commit_begins(state, *file->model);
  ControlCall commit(session_.scheduler, *file->file, ControlRequest::Kind::kCommit);
  if (session_.world.random().chance(70)) commit.start();
  const std::unique_ptr<WriteUnderWay> write = begin_write(process, file, offset, std::move(data));
  const bool closed = co_await close(process, file);
  const bool written = co_await end_write(*write);
  bool is_committed = true;
  if (commit.started) {
    const Status status = co_await commit;
    const bool may_tell_loss = lost_.erase(file->inode) > 0;
    is_committed = (!status.is_ok() && may_tell_loss) || good(status, *file, "commit beside a write");
  }
  co_return closed&& written&& is_committed;
}

Task<bool> Machine::truncate(Process& process, const OpenFile& file, uint64_t size) {
  if (!session_.goes_on() || !co_await write_back(file->inode)) co_return false;
  State& state = state_of(file->inode);
  if (file->model->content().size() == size) co_return true;  // changes nothing, and is nobody's change
  Content after = file->model->content();
  const bool cuts_all = size == 0;
  after.resize(size);
  const bool may_be_trickle = file->has_written && (file->appends() || !file->is_stream);
  const size_t version = coming(*file, std::move(after), may_be_trickle);
  ControlCall call(session_.scheduler, *file->file, ControlRequest::Kind::kTruncate, size);
  // As at an open with O_TRUNC, and in setattr (fs/operations/attr.cpp).
  call.request.origin = {file->writer.get(), {0, process.number}, false};
  ++file->received;
  call.start();
  const auto own = file->changes.find(process.number);
  const bool is_first =
      (own == file->changes.end() || own->second <= state.committed) && file->under_way[process.number] == 0;
  if (!good(co_await call, *file, "truncate")) co_return false;
  settle(*file, process.number);
  file->emptied.erase(process.number);
  if (cuts_all && is_first) file->emptied[process.number] = file->changes[process.number];
  if (cuts_all && state.covered < version) state.truncated_at = version;
  co_return true;
}

Task<bool> Machine::punch(Process& process, const OpenFile& file, uint64_t offset, uint64_t length) {
  if (!session_.goes_on() || !co_await write_back(file->inode)) co_return false;
  Content after = file->model->content();
  const uint64_t end = std::min<uint64_t>(after.size(), offset + length);
  const bool may_be_trickle = file->appends() || !file->is_stream;
  // The ragged ends become zeros one by one before the whole chunks do.
  if (offset < end) {
    const uint64_t head_end = std::min(end, round_up(offset, kChunk));
    const uint64_t tail = std::max(head_end, round_down(end, kChunk));
    for (const auto& [from, to] : {std::pair(offset, head_end), std::pair(tail, end)}) {
      if (from == to) continue;
      std::fill_n(after.begin() + static_cast<ptrdiff_t>(from), to - from, std::byte{0});
      coming(*file, after, may_be_trickle);
    }
    std::fill_n(after.begin() + static_cast<ptrdiff_t>(offset), end - offset, std::byte{0});
  }
  coming(*file, std::move(after), may_be_trickle);
  ControlCall call(session_.scheduler, *file->file, ControlRequest::Kind::kPunchHole, offset, length);
  call.request.origin = {file->writer.get(), {0, process.number}, false};
  ++file->received;
  call.start();
  if (!good(co_await call, *file, "punch")) {
    if (!session_.world.is_off()) file->model->forget();  // a part of it may be there
    co_return false;
  }
  settle(*file, process.number);
  file->window_is_certain = false;  // the zeros of its ends count as written
  file->has_written = true;
  co_return true;
}

Task<bool> Machine::read_all(const OpenFile& file, Content* content) {
  if (!co_await write_back(file->inode)) co_return false;
  content->clear();
  for (;;) {
    ReadCall call(session_.scheduler, *file->file, content->size(), 256 * kKiB);
    call.start();
    if (!session_.good(co_await call, "read")) co_return false;
    if (call.data.empty()) co_return true;
    content->insert(content->end(), call.data.begin(), call.data.end());
  }
}

// --- fsync ----------------------------------------------------------------------------------------------------------

Task<bool> Machine::fsync(const OpenFile& file) {
  if (!session_.goes_on() || !co_await write_back(file->inode)) co_return false;
  FileModel& model = *file->model;
  const size_t version = model.may_show(), attributes = model.attributes_version();
  const Model::Operation names = session_.model.now();
  commit_begins(state_of(file->inode), model);
  const bool skips = (session_.planted == PlantedCall::kReaderSyncsNothing && file->writer == nullptr) ||
                     (session_.planted == PlantedCall::kCleanSyncsNothing && !file->file->is_dirty());
  Status status;
  if (!skips) {
    ControlCall call(session_.scheduler, *file->file, ControlRequest::Kind::kCommit);
    call.start();
    status = co_await call;
  }
  const bool may_tell_loss = lost_.erase(file->inode) > 0;
  if (!status.is_ok() && may_tell_loss) co_return true;
  if (!good(status, *file, "fsync")) co_return has_failed(file->inode);
  // For a file without a name that promises nothing: should its last name come back with a power cut, so does what was
  // committed under it.
  if (!session_.model.has_name(file->inode)) co_return true;
  committed(*file, version);
  model.acknowledge_attributes(attributes);
  session_.model.file_names_synced(file->inode, 0, names, true);
  co_return true;
}

std::shared_ptr<File> Machine::open_file(uint64_t inode) const {
  const auto found = states_.find(inode);
  if (found == states_.end() || found->second->open.empty()) return nullptr;
  return found->second->open.front()->file;
}

void Machine::may_be_committed(uint64_t inode) {
  const auto found = states_.find(inode);
  if (found == states_.end()) return;
  if (const std::shared_ptr<FileModel> model = session_.model.file(inode)) commit_begins(*found->second, *model);
}

void Machine::reopened(uint64_t inode) {
  failed_.erase(inode);
  State& state = state_of(inode);
  state.mapped.reset();
  state.dirty.clear();
  may_be_committed(inode);
}

// --- mappings -------------------------------------------------------------------------------------------------------

void Machine::map(Process& process, const OpenFile& file) {
  ++file->mappings;
  process.mappings.push_back(file);
}

Task<bool> Machine::unmap(Process& process, const OpenFile& mapped) {
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): `mapped` may be the entry that goes
  const OpenFile file = mapped;
  if (!session_.goes_on() || !co_await write_back(file->inode)) co_return false;
  process.mappings.erase(std::find(process.mappings.begin(), process.mappings.end(), file));
  --file->mappings;
  const bool ended = co_await release(file);
  co_return ended;
}

void Machine::store(const OpenFile& file, uint64_t offset, Content data) {
  state_of(file->inode).dirty.push_back({offset, std::move(data)});
}

// Through whichever handle the kernel picks.
Task<bool> Machine::write_back(uint64_t inode) {
  State& state = state_of(inode);
  if (has_failed(inode)) state.dirty.clear();
  while (!state.dirty.empty()) {
    if (!session_.goes_on()) co_return false;
    std::vector<Description*> handles;
    for (Description* file : state.open)
      if (file->may_map()) handles.push_back(file);
    FPFS_CHECK(!handles.empty(), "a mapping keeps its description");
    const OpenFile file = handles[session_.world.random().below(handles.size())]->shared_from_this();
    const Page page = std::move(state.dirty.front());
    state.dirty.erase(state.dirty.begin());
    Content after = file->model->content();
    if (page.offset >= after.size()) continue;
    const size_t length = std::min<size_t>(page.data.size(), after.size() - page.offset);
    std::copy_n(page.data.begin(), length, after.begin() + static_cast<ptrdiff_t>(page.offset));
    const size_t version = coming(*file, std::move(after), false);
    WriteCall call(session_.scheduler, *file->file, page.offset, std::span(page.data).first(length));
    call.request.origin = {file->writer.get(), {}, true};
    if (session_.planted == PlantedCall::kPagesOfOneHandle) call.request.origin.by_mapping = false;
    call.start();
    if (!good(co_await call, *file, "writeback")) {
      if (!session_.world.is_off()) file->model->forget();
      co_return false;
    }
    file->model->settle();
    state.mapped = version;
    file->has_written = true;
    file->window_is_certain = false;
  }
  co_return true;
}

// --- time -----------------------------------------------------------------------------------------------------------

uint64_t Machine::now_ns() {
  const struct timespec now = session_.world.now();
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

Task<bool> Machine::sleep(std::chrono::milliseconds time) {
  co_await Pause{session_.world, session_.scheduler, time};
  co_return session_.goes_on();
}

Task<bool> Machine::wait_for_trickle(const OpenFile& file) {
  const StoreOptions& options = session_.options;
  const auto sooner = [](unsigned a, unsigned b) { return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b); };
  const unsigned soonest = sooner(options.commit_interval_ms, options.commit_idle_ms);
  if (soonest == 0) co_return true;
  if (!co_await write_back(file->inode)) co_return false;
  const size_t version = file->model->settled();
  if (!co_await sleep(std::chrono::milliseconds(2 * soonest))) co_return false;
  for (unsigned looks = 0; file->file->is_dirty(); ++looks) {
    if (looks == kLooksMax) {
      session_.fail(fmt::format("the log of inode {} is not committed by itself", file->inode));
      co_return false;
    }
    // A look at the clock now and then: the engine's own come a fifth of the time apart.
    if (!co_await sleep(std::chrono::milliseconds(looks % 100 == 99 ? soonest : 0))) co_return false;
  }
  if (session_.model.has_name(file->inode) && file->file->error().is_ok()) committed(*file, version);
  co_return true;
}

// --- what the model is told -----------------------------------------------------------------------------------------

bool Machine::is_unfinished(const State& state, const Description& file) const {
  return std::any_of(file.changes.begin(), file.changes.end(),
                     [&state](const auto& change) { return change.second > state.covered; });
}

// Everybody else who is in the middle of writing may be a trickle, for all that is known.
bool Machine::others_trickle(const State& state, const Description& changing) const {
  const bool has_mapped = state.mapped.has_value() && *state.mapped > state.covered;
  for (const Description* file : state.open) {
    if (has_mapped && file->may_map()) return false;
    if (file == &changing || !is_unfinished(state, *file)) continue;
    if (!file->has_written || (file->is_stream && !file->appends())) return false;
  }
  return true;
}

// Gives the version that the change makes.
size_t Machine::coming(Description& file, Content content, bool may_be_trickle) {
  State& state = state_of(file.inode);
  if (state.uncommitted_since_ns == 0) state.uncommitted_since_ns = now_ns();
  return file.model->coming(std::move(content), may_be_trickle && others_trickle(state, file));
}

void Machine::settle(Description& file, uint32_t process) {
  file.model->settle();
  file.changes[process] = file.model->settled();
}

// A stream, for certain: more than a chunk at once; or since it began, or was committed for certain, in a time in which
// no trickle is committed.
void Machine::note_written(WriteUnderWay& write) {
  Description& file = *write.file;
  const State& state = state_of(file.inode);
  const uint64_t bytes = write.data.size();
  file.has_written = true;
  if (state.covered >= write.version) return;  // a commit has begun behind it, which may have it
  if (bytes > kChunk) {
    file.is_stream = true;
    return;
  }
  if (file.window_bytes == 0) file.window_began_ns = write.began_ns;
  file.window_bytes += bytes;
  uint64_t limit_ns = UINT64_MAX;
  for (const unsigned limit_ms : {session_.options.commit_interval_ms, session_.options.commit_idle_ms})
    if (limit_ms != 0) limit_ns = std::min(limit_ns, uint64_t{limit_ms} * 1'000'000);
  const uint64_t since = std::min(file.window_began_ns, state.uncommitted_since_ns);
  if (session_.synced_by_others || now_ns() - since >= limit_ns) file.window_is_certain = false;
  if (!file.window_is_certain || file.window_bytes <= kChunk) return;
  file.is_stream = true;
  if (!file.appends()) file.model->must_not_show(write.version);
}

// The content was cut to nothing and is being written anew, and no commit can have come between.
bool Machine::replaces_for_certain(const State& state, const FileModel& model) {
  return state.truncated_at.has_value() && !model.may_show_since(*state.truncated_at) &&
         model.has_committed_content(*state.truncated_at);
}

void Machine::commit_begins(State& state, FileModel& model) {
  state.covered = model.last();
  state.truncated_at.reset();
  for (Description* file : state.open) {
    file->is_stream = file->window_is_certain = false;
    file->window_bytes = 0;
  }
}

void Machine::committed(Description& file, size_t version) {
  State& state = state_of(file.inode);
  file.model->acknowledge(version);
  state.committed = std::max(state.committed, version);
  if (version != file.model->last()) return;
  state.uncommitted_since_ns = 0;
  for (Description* other : state.open) other->window_is_certain = true;
}

// --- the end of the mount -------------------------------------------------------------------------------------------

void Machine::cut_off() {
  for (const auto& [inode, state] : states_) {
    if (!session_.model.has_name(inode) || has_failed(inode)) continue;
    FileModel& model = *session_.model.file(inode);
    bool is_left = false, may_be_unfinished = state->mapped.has_value() && *state->mapped > state->committed;
    for (const Description* file : state->open) {
      const bool is_trickle = file->has_written && (file->appends() || !file->is_stream);
      // Of a file that was only made there is nothing to lose but an empty file.
      const bool is_only_made = file->writer != nullptr && file->writer->description().is_new && !file->has_written;
      is_left |= is_unfinished(*state, *file) && !is_trickle && !is_only_made;
      is_left |= file->may_map() && state->mapped.has_value() && *state->mapped > state->covered;
      for (const auto& [process, version] : file->changes) may_be_unfinished |= version > state->committed;
    }
    if (is_left)
      left_.insert(inode);
    else if (may_be_unfinished)
      trickles_.insert(inode);
    if (!is_left) model.may_show();
  }
  for (const OpenFile& file : open_) {
    file->machine = nullptr;
    if (file->writer == nullptr) continue;
    if (session_.planted == PlantedCall::kEndCommits)
      (void)file->file->detach(*file->writer);
    else
      file->file->cut_off(*file->writer);
  }
  open_.clear();
  for (const auto& [inode, state] : states_) state->open.clear();
}

void Machine::ended(std::optional<bool> said_busy) {
  if (said_busy.has_value() && (*said_busy ? left_.empty() && trickles_.empty() : !left_.empty() && failed_.empty()))
    session_.fail(fmt::format("{} files were being written when the mount ended, {} perhaps; it {}", left_.size(),
                              trickles_.size(), *said_busy ? "says that some were" : "says nothing of it"));
  for (const auto& [inode, model] : session_.model.files()) {
    if (left_.contains(inode) || trickles_.contains(inode) || has_failed(inode)) continue;
    model->acknowledge(model->settled());
    model->acknowledge_attributes(model->attributes_version());
  }
}

}  // namespace fpfs::crash
