#include "tests/crash/copier.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "tests/crash/calls.h"

namespace fpfs::crash {

namespace {

constexpr size_t kHeldMax = 5;

// One chunk of a version.
struct ChunkCall : Call {
  explicit ChunkCall(Scheduler& call_scheduler)
      : Call(call_scheduler), buffer(static_cast<std::byte*>(std::aligned_alloc(kIoAlignment, kChunk)), std::free) {
    transfer.owner = this;
    transfer.done = [](ChunkTransfer& done, const ObjectSet&, const Status& result) {
      static_cast<ChunkCall*>(done.owner)->complete(result);
    };
    transfer.data = buffer.get();
  }
  void start(const CommittedVersion& version) {
    started = true;
    version.read(transfer, nullptr);
  }

  std::unique_ptr<std::byte, void (*)(void*)> buffer;
  ChunkTransfer transfer;
};

}  // namespace

Task<bool> Copier::run(unsigned looks) {
  for (; looks > 0 && session_.goes_on(); --looks) {
    bool went_on = true;
    if (held_.size() < kHeldMax && random_.chance(40)) went_on = open_and_hold();
    if (went_on && !held_.empty() && random_.chance(40)) went_on = co_await read(held_[random_.below(held_.size())]);
    if (!held_.empty() && random_.chance(15))
      held_.erase(held_.begin() + static_cast<ptrdiff_t>(random_.below(held_.size())));
    if (!went_on) co_return false;
    if (!co_await machine_.sleep(std::chrono::milliseconds(random_.below(20)))) co_return !session_.world.is_off();
  }
  while (session_.goes_on() && !held_.empty() && random_.chance(70)) {
    if (!co_await read(held_.back())) co_return false;
    if (!held_.empty()) held_.pop_back();
  }
  co_return true;
}

void Copier::told(uint64_t inode, uint64_t sequence) {
  uint64_t& last = told_[inode];  // told of again, perhaps, when the file was opened again (durable=fsync)
  if (sequence < last) session_.fail(fmt::format("commit {} of inode {} is told of behind {}", sequence, inode, last));
  last = sequence;
  if (sequence == 0) return;  // a name, of what holds nothing
  const std::shared_ptr<File> file = machine_.open_file(inode);
  if (file == nullptr || held_.size() >= kHeldMax || !session_.goes_on() || !random_.chance(30)) return;
  const Held held = hold(file, inode);
  if (held == nullptr || (held->version != nullptr && held->version->sequence() < sequence))
    session_.fail(fmt::format("commit {} of inode {} was told of, and cannot be held", sequence, inode));
}

bool Copier::let_go() {
  return !std::exchange(held_, {}).empty();
}

void Copier::let_go_of(uint64_t inode) {
  std::erase_if(held_, [inode](const Held& held) { return held->inode == inode; });
}

// Under some name that is not just being changed.
bool Copier::open_and_hold() {
  std::vector<std::string> paths;
  for (const auto& [path, inode] : session_.model.names())
    if (inode != Model::kAbsent) paths.push_back(path);
  if (paths.empty()) return true;
  const std::string& path = paths[random_.below(paths.size())];
  const size_t slash = path.find('/');
  size_t directory = 0;
  while (session_.directory_names[directory] != path.substr(0, slash)) ++directory;
  Result<Store::Node> node = session_.store.lookup(session_.directories[directory], path.substr(slash + 1));
  if (node.status().code() == StatusCode::kNotFound) return true;
  if (!session_.good(node.status(), "lookup of " + path)) return false;
  const uint64_t inode = node->attributes.st_ino;
  if (inode != session_.model.inode_at(path)) return true;
  Result<std::shared_ptr<File>> file = session_.store.open_file(node->handle.get(), false);
  node->handle.reset();
  if (!session_.good(file.status(), "open of " + path)) return false;
  static_cast<void>(hold(*file, inode));
  return true;
}

Copier::Held Copier::hold(const std::shared_ptr<File>& file, uint64_t inode) {
  const std::shared_ptr<FileModel> model = session_.model.file(inode);
  Result<std::unique_ptr<CommittedVersion>> version = file->hold_version();
  if (!version.is_ok()) {
    // Commits that are not durable, and more than an empty file, there are with durable=fsync only.
    if (session_.commits_at_close() && model->has_committed_content())
      session_.fail(fmt::format("inode {} has no version to hold: {}", inode, version.status().message()));
    return nullptr;
  }
  auto held = std::make_shared<HeldVersion>();
  held->version = std::move(*version);
  held->file = file;
  held->model = model;
  held->inode = inode;
  held->contents = model->consistent_points();
  if (session_.planted == PlantedCall::kVersionLetGo) {
    Result<FileImage> image = held->version->image();
    if (!image.is_ok()) return nullptr;
    held->image = std::move(*image);
    held->version.reset();
  }
  held_.push_back(held);
  return held;
}

Task<bool> Copier::read(Held held) {
  std::unique_ptr<CommittedVersion> later;  // of a planted mistake
  if (held->version == nullptr) {
    Result<std::unique_ptr<CommittedVersion>> holds = held->file->hold_version();
    if (!holds.is_ok()) co_return true;
    later = std::move(*holds);
  }
  const CommittedVersion& by = later != nullptr ? *later : *held->version;
  std::optional<FileImage> read_now;
  Status status;
  if (!held->image.has_value()) {
    Result<FileImage> image = by.image();
    status = image.status();
    if (image.is_ok()) read_now = std::move(*image);
  }
  Content content;
  if (status.is_ok()) status = co_await read_chunks(by, held->image.has_value() ? *held->image : *read_now, content);
  if (session_.good(status, fmt::format("reading of a version of inode {} that is held", held->inode)))
    compare(*held, std::move(content));
  else
    std::erase(held_, held);
  co_return session_.failure.empty() && !session_.world.is_off();
}

Task<Status> Copier::read_chunks(const CommittedVersion& by, const FileImage& image, Content& content) {
  if (image.is_inline) {
    content = image.inline_data;
    content.resize(image.size);  // zeros
    co_return Status::ok();
  }
  content.resize(image.size);
  const std::shared_ptr<ObjectSet> objects = by.objects(image);
  std::vector<std::pair<ChunkIndex, Extent>> extents;
  image.extents.for_each(ChunkIndex(0), [&extents](ChunkIndex chunk, const Extent& extent) {
    extents.emplace_back(chunk, extent);
    return true;
  });
  for (const auto& [chunk, extent] : extents) {
    ChunkCall call(session_.scheduler);
    call.transfer.chunk = chunk;
    call.transfer.extent = extent;
    call.transfer.objects = objects;
    call.start(by);
    const Status status = co_await call;
    if (!status.is_ok()) co_return status;
    std::copy_n(call.buffer.get(), extent.visible_length,
                content.begin() + static_cast<ptrdiff_t>(offset_of(chunk, kChunk).value()));
  }
  co_return Status::ok();
}

void Copier::compare(HeldVersion& held, Content&& content) {
  const auto is_shown = [&content](const auto& point) { return *point == content; };
  const bool is_right = held.seen.has_value() ? *held.seen == content
                                              : held.contents.empty() ||
                                                    std::any_of(held.contents.begin(), held.contents.end(), is_shown);
  if (!is_right)
    session_.fail(fmt::format("a version of inode {} that is held shows {} bytes which {}", held.inode, content.size(),
                              held.seen.has_value() ? "it did not before" : "no commit can have made durable"));
  if (content != held.model->content()) ++old_versions_read_;
  held.contents.clear();
  held.seen = std::move(content);
}

}  // namespace fpfs::crash
