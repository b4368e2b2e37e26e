#include "fs/operations/tier.h"

#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "fs/operations/privileges.h"
#include "fs/operations/reply.h"

namespace fpfs::operations {
namespace {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

void put_outcome(IoctlTier& answer, const Status& status) {
  answer.error = status.errno_value();
  const std::string message = status.is_ok() ? "" : status.message().substr(0, sizeof answer.message - 1);
  std::memcpy(answer.message, message.c_str(), message.size() + 1);
}

// Answers with a ticket; `start` is given it, and what ends it.
template <typename Start>
void begin_call(fuse_req_t request, IoctlTier answer, Start start) {
  FileSystem& file_system = file_system_of(request);
  answer.ticket = file_system.random_u64();
  const Status begun = file_system.tickets().begin(answer.ticket);
  if (!begun.is_ok()) return reply_status(request, begun);
  start(answer.ticket,
        [&file_system, ticket = answer.ticket](const Status& status) { file_system.tickets().end(ticket, status); });
  fuse_reply_ioctl(request, 0, &answer, sizeof answer);
}

void fetch(fuse_req_t request, const IoctlTier& question, const std::shared_ptr<File>& file) {
  begin_call(request, question, [&](uint64_t ticket, const ArrayTier::Done& done) {
    FileSystem& file_system = file_system_of(request);
    file_system.fetch(
        file, [&file_system, ticket] { return file_system.tickets().is_asked_for(ticket); }, done);
  });
}

void ask(fuse_req_t request, IoctlTier answer) {
  const std::optional<Status> outcome = file_system_of(request).tickets().ask(answer.ticket);
  answer.is_over = outcome.has_value() ? 1 : 0;
  put_outcome(answer, outcome.value_or(Status::ok()));
  fuse_reply_ioctl(request, 0, &answer, sizeof answer);
}

}  // namespace

void tier_of_mount(fuse_req_t request, fuse_ino_t node, const IoctlTier& question) {
  if (question.command == IoctlTier::kAsk) return ask(request, question);
  if (node != InodeTable::kRootNode || !owns_mount(request)) {
    fuse_reply_err(request, node != InodeTable::kRootNode ? ENOTTY : EPERM);
    return;
  }
  ArrayTier& tier = file_system_of(request).tier();
  switch (question.command) {
    case IoctlTier::kSet: {
      TierSet set;
      set.url.assign(question.url, ::strnlen(question.url, sizeof question.url));
      set.host = host_name();
      set.mounted_at = file_system_of(request).settings().mount_point;
      set.share = question.share != 0;
      set.has_other_files = question.has_other_files != 0;
      set.restores = question.restores != 0;
      set.restored_array.assign(question.array, ::strnlen(question.array, sizeof question.array));
      return begin_call(request, question, [&](uint64_t, const ArrayTier::Done& done) { tier.set(set, done); });
    }
    case IoctlTier::kLeave:
      return begin_call(request, question, [&](uint64_t, const ArrayTier::Done& done) { tier.leave(done); });
    case IoctlTier::kWait:
      return begin_call(request, question, [&](uint64_t, const ArrayTier::Done& done) { tier.wait_for_all(done); });
    default:
      fuse_reply_err(request, EINVAL);
  }
}

void tier_of_file(fuse_req_t request, const OpenFile& open, const IoctlTier& question) {
  if (question.command == IoctlTier::kAsk) return ask(request, question);
  if (question.command == IoctlTier::kFetch) return fetch(request, question, open.file);
  if (question.command != IoctlTier::kWait) {
    fuse_reply_err(request, ENOTTY);
    return;
  }
  if (!open.may_write() && !owns_mount(request)) {
    fuse_reply_err(request, EPERM);
    return;
  }
  FileSystem& file_system = file_system_of(request);
  const Result<struct stat> attributes = file_system.store().attributes(open.inode->handle);
  if (!attributes.is_ok()) return reply_status(request, attributes.status());
  const std::optional<Store::OpenFile> file = file_system.store().find_open(attributes->st_ino);
  if (!file.has_value()) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  begin_call(request, question,
             [&](uint64_t, const ArrayTier::Done& done) { file_system.tier().wait_for(file->path, done); });
}

}  // namespace fpfs::operations
