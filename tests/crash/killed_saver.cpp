// Machine, where a saver is killed in the middle of a replacement: the file has its old content again. Another process
// may write to it, replace it or open it at that moment. What it changes is there afterwards, on top of the old
// content; or, when the engine has taken it before it is told of the death, both are given up and it gets an error.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "tests/crash/process.h"

namespace fpfs::crash {

Content Beside::change(Content content) const {
  if (replaces) content.clear();
  if (data.empty()) return content;
  content.resize(std::max<size_t>(content.size(), offset + data.size()));
  std::copy(data.begin(), data.end(), content.begin() + static_cast<ptrdiff_t>(offset));
  return content;
}

// The close that a signal does for its process.
Task<bool> Machine::flush_killed(Process& process, const OpenFile& file, Beside* beside) {
  State& state = state_of(file->inode);
  FileModel& model = *file->model;
  // What it wrote, or may have mapped, may have been committed meanwhile; then it is others who replace the content. Who
  // wrote before that only and may have mapped since is a saver perhaps.
  const auto own = file->changes.find(process.number);
  const bool is_opener = file->writer->description().opener.process == process.number;
  const bool wrote = own != file->changes.end() && own->second > state.covered;
  const bool mapped = state.mapped.has_value() && *state.mapped > state.covered && file->may_map();
  const bool is_saver = wrote || (mapped && is_opener);
  const bool is_certain = is_saver && replaces_for_certain(state, model);
  bool others_write = false;
  for (const Description* other : state.open)
    for (const auto& [number, version] : other->changes)
      others_write |= version > state.committed && !(other == file.get() && number == process.number);
  // A child that has changed nothing is nobody's saver.
  const bool may_be_saver = own != file->changes.end() || (file->may_map() && state.mapped.has_value());
  if (may_be_saver) {
    if (!is_certain) model.may_show();
    commit_begins(state, model);
  }
  const FileModel::Contents old = model.consistent_points();
  const FileModel::Contents now = {std::make_shared<const Content>(model.content())};
  ControlCall call(session_.scheduler, *file->file, ControlRequest::Kind::kClose);
  call.request.origin = {file->writer.get(), {process.owner, process.number}, false};
  call.request.killed = session_.planted != PlantedCall::kKilledSaverCommits;
  std::optional<Task<bool>> another;
  if (beside != nullptr && !beside->is_done) another.emplace(act(*beside, old));
  const bool comes_first = another.has_value() && beside->comes_first;
  if (comes_first) another->handle().resume();
  call.start();
  if (another.has_value() && !comes_first) another->handle().resume();
  const Status status = co_await call;
  while (another.has_value() && !another->done()) co_await sleep({});
  others_write |= comes_first && beside->changes();
  if (call.request.was_reverted && !status.is_ok() && others_write) {
    failed_.insert(file->inode);
    ++failures_;
    if (!session_.commits_at_close()) {
      has_lost_ = true;
      lost_.insert(file->inode);
    }
  }
  if (!good(status, *file, "close of a saver that was killed") || has_failed(file->inode))
    co_return has_failed(file->inode);
  if (another.has_value() && !good(beside->status, *file, "a change beside the death of a saver")) co_return false;
  if (another.has_value() && !another->result()) co_return false;
  if (!may_be_saver && call.request.was_reverted) session_.fail("a replacement was given up with the death of a child");
  const bool is_given_up = is_certain || call.request.was_reverted;
  bool ended = session_.failure.empty();
  if (another.has_value() && beside->changes())
    ended = co_await look_after_change(*beside, is_given_up ? old : now, is_given_up);
  else if (may_be_saver && is_given_up)
    ended = co_await look_after_death(file, is_certain);
  co_return ended;
}

// Readers see the old content, or, where the new one may have been committed before, that.
Task<bool> Machine::look_after_death(const OpenFile& file, bool is_certain) {
  State& state = state_of(file->inode);
  Content seen;
  if (!co_await read_all(file, &seen)) co_return false;
  if (!file->model->allows(seen) && !session_.drives_lie) {
    session_.fail(fmt::format("inode {} holds {} bytes after the death of who was replacing it{}; versions: {}",
                              file->inode, seen.size(), is_certain ? "" : " or did so before",
                              file->model->describe_versions()));
    co_return false;
  }
  file->model->coming(std::move(seen), true);
  file->model->settle();
  gave_up(state, *file->model);
  co_return true;
}

// Nobody has changes that are not committed.
void Machine::gave_up(State& state, FileModel& model) {
  for (Description* other : state.open) other->changes.clear();
  state.mapped.reset();
  state.dirty.clear();
  commit_begins(state, model);
}

// `before`: what the change may find.
Task<bool> Machine::act(Beside& beside, const FileModel::Contents& before) {
  beside.is_done = true;
  if (beside.file == nullptr && !beside.open(&beside.file)) co_return false;
  const OpenFile file = beside.file;
  if (beside.replaces) {
    coming(*file, {}, false);
    ControlCall call(session_.scheduler, *file->file, ControlRequest::Kind::kTruncate);
    call.request.origin = {file->writer.get(), {0, beside.process.number}, false};
    ++file->received;
    call.start();
    beside.status = co_await call;
    if (!beside.status.is_ok()) co_return false;
  }
  if (beside.data.empty()) co_return true;
  const bool may_be_trickle = file->appends() || (!file->is_stream && beside.data.size() <= kChunk);
  for (const auto& content : before) coming(*file, beside.change(*content), may_be_trickle);
  WriteCall call(session_.scheduler, *file->file, beside.offset, beside.data);
  call.request.origin = origin_of_write(beside.process, *file);
  ++file->received;
  call.start();
  beside.status = co_await call;
  co_return beside.status.is_ok();
}

// Readers see what it has made of what was there `before`.
Task<bool> Machine::look_after_change(const Beside& beside, const FileModel::Contents& before, bool is_given_up) {
  Description& file = *beside.file;
  FileModel& model = *file.model;
  State& state = state_of(file.inode);
  Content seen;
  if (!co_await read_all(beside.file, &seen)) co_return false;
  const auto found =
      std::find_if(before.begin(), before.end(), [&](const auto& content) { return beside.change(*content) == seen; });
  if (found == before.end() && !before.empty() && !session_.drives_lie) {
    session_.fail(
        fmt::format("inode {} holds {} bytes, behind a {} of {} bytes at {} at the death of who was replacing "
                    "it; versions: {}",
                    file.inode, seen.size(), beside.replaces ? "replacement" : "write", beside.data.size(),
                    beside.offset, model.describe_versions()));
    co_return false;
  }
  if (is_given_up) {
    if (found != before.end() && !beside.replaces) {
      model.coming(**found, true);
      model.settle();
    }
    gave_up(state, model);
  }
  if (beside.replaces) {
    const size_t version = coming(file, {}, false);
    settle(file, beside.process.number);
    state.truncated_at = version;
  }
  if (beside.data.empty()) co_return true;
  coming(file, std::move(seen), file.appends() || (!file.is_stream && beside.data.size() <= kChunk));
  settle(file, beside.process.number);
  file.has_written = true;
  file.window_is_certain = false;
  file.is_stream |= beside.data.size() > kChunk;
  co_return true;
}

}  // namespace fpfs::crash
