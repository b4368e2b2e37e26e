#include "engine/tensors/save_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

namespace fpfs {
namespace {

template <typename Request>
Status await_request(const Await& await, Request& request, const std::function<void()>& start) {
  Answered answered;
  request.owner = &answered;
  request.complete = [](Request& done, const Status& status) { (*static_cast<Answered*>(done.owner))(status); };
  return await([&](Answered done) {
    answered = std::move(done);
    start();
  });
}

Status commit(File& file, ControlRequest::Kind kind, const Await& await) {
  ControlRequest request;
  request.kind = kind;
  return await_request(await, request, [&] { file.control(request); });
}

Status write(File& file, std::span<const std::span<const std::byte>> pieces, const Await& await) {
  FileOffset offset;
  for (std::span<const std::byte> piece : pieces)
    while (!piece.empty()) {
      WriteRequest request;
      request.offset = offset;
      request.length = static_cast<uint32_t>(std::min<size_t>(piece.size(), kRequestBytesMax));
      request.data = piece.data();
      FPFS_RETURN_IF_ERROR(await_request(await, request, [&] { file.write(request); }));
      offset += request.length;
      piece = piece.subspan(request.length);
    }
  return Status::ok();
}

// A link cannot replace a name; a rename can, in one step.
Status give_name(Store& store, Handle node, Handle directory, const std::string& name, uint64_t number,
                 const Await& await) {
  const Status linked = store.link(node, directory, name);
  if (linked.code() != StatusCode::kExists) return linked;
  {
    const Result<Store::Node> old = store.lookup(directory, name);
    if (old.is_ok() && S_ISDIR(old->attributes.st_mode)) return Status::from_errno(EISDIR, "save to " + name);
    if (!old.is_ok() && old.status().code() != StatusCode::kNotFound) return old.status();  // or it was just removed
  }
  const std::string beside = fmt::format(".fastpersist-{:016x}", number);
  FPFS_RETURN_IF_ERROR(store.link(node, directory, beside));
  const Status renamed =
      await([&](Answered done) { store.rename_async(directory, beside, directory, name, 0, std::move(done)); });
  if (!renamed.is_ok()) static_cast<void>(store.unlink(directory, beside));
  return renamed;
}

}  // namespace

Status save_file(Store& store, Handle directory, const std::string& name, mode_t mode,
                 std::span<const std::span<const std::byte>> pieces, uint64_t number, const Await& await) {
  FPFS_ASSIGN_OR_RETURN(const Store::Created created, store.create_unnamed(directory, mode));
  const Handle node = created.node.handle.get();
  FPFS_ASSIGN_OR_RETURN(const bool inherited, store.inherit_settings(directory, node));
  if (inherited) {
    FPFS_ASSIGN_OR_RETURN(const std::optional<Compression> compression, store.compression(node));
    created.file->set_compression(compression);
  }
  FPFS_RETURN_IF_ERROR(write(*created.file, pieces, await));
  FPFS_RETURN_IF_ERROR(commit(*created.file, ControlRequest::Kind::kCommit, await));
  FPFS_RETURN_IF_ERROR(give_name(store, node, directory, name, number, await));
  // The new name becomes durable, and what was reserved behind the end is given back.
  return commit(*created.file, ControlRequest::Kind::kClose, await);
}

}  // namespace fpfs
