// open, create, release: from a node to a File and back.
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>

#include "fs/operations/as_caller.h"
#include "fs/operations/calling_process.h"
#include "fs/operations/creation.h"
#include "fs/operations/operations.h"
#include "fs/operations/privileges.h"
#include "fs/operations/reply.h"
#include "fs/protocol/request_context.h"

namespace fpfs::operations {
namespace {

// O_TRUNC changes the file also through a descriptor that is for reading.
bool may_write(const fuse_file_info& info) {
  return (info.flags & O_ACCMODE) != O_RDONLY || (info.flags & O_TRUNC) != 0;
}

bool may_read(const fuse_file_info& info) {
  return (info.flags & O_ACCMODE) == O_RDONLY || (info.flags & O_ACCMODE) == O_RDWR;
}

// For what is about to be opened; null for a reader.
std::shared_ptr<Writer> make_writer(fuse_req_t request, File& file, const fuse_file_info& info, bool is_new) {
  if (!may_write(info)) return nullptr;
  Writer::Description description;
  description.opener.process = process_of(fuse_req_ctx(request)->pid);
  // A shared mapping that can change the file needs a handle like this.
  description.may_map = (info.flags & O_ACCMODE) == O_RDWR;
  description.appends = (info.flags & O_APPEND) != 0;
  description.is_new = is_new;
  auto writer = std::make_shared<Writer>(description);
  file.attach(*writer);
  return writer;
}

// After the last request that came through it was answered. What it leaves unfinished is committed: pages of a mapping
// that outlived its descriptors; nobody is left to be told of a failure, except the log. `killed`: its opener was,
// before it knew.
void end_writer(FileSystem& file_system, Inode* inode, const std::shared_ptr<File>& file,
                const std::shared_ptr<Writer>& writer, bool killed) {
  if (writer == nullptr) return;
  ControlRequest request;
  request.kind = ControlRequest::Kind::kClose;
  if (killed && file->is_replacing() && file_system.settings().killed_keeps_old) {
    request.origin = {writer.get(), writer->description().opener, false};
    request.killed = true;
    return file_system.control(file, request, [file, writer](const ControlRequest&, const Status& status) {
      log_fault(status);
      (void)file->detach(*writer);
    });
  }
  if (!file->detach(*writer)) return;
  const Durable durable = inode != nullptr ? file_system.durable_of(*inode) : file_system.settings().durable;
  if (durable == Durable::kFsync) return file->closed_by_writer();
  file->promise();
  request.unfinished = ControlRequest::Unfinished::kLeftAlone;
  file_system.control(file, request, [](const ControlRequest&, const Status& status) { log_fault(status); });
}

constexpr uint64_t kSmallBytes = 4 * kMiB;

// Who only writes goes past the page cache: one copy, and no pages that the training job would have to make room for.
//
// Who may also map the file goes through it. A write past the cache and a mapping that changes another part of the same
// page lose one of the two: when the mapping touches the page while the write is on its way here, the kernel reads it
// as it was before, and once the write was answered it drops the page (invalidate_inode_pages2_range in
// fs/fuse/file.c), writing it back whole first, as it is dirty: over what was just written. In the cache both change
// the same page, as on any local filesystem. A writer beside such a handle goes through the cache for the same reason.
//
// Readers go through it, as on any filesystem: the kernel then reads ahead, several requests at once, while the reader
// works on what has come (torch.load of 1 GiB: 1.25 against 0.95 GB/s past the cache, where tmpfs gives 1.35), and all
// processes that load one file share its pages. Without the privilege to raise the read-ahead that would be steps of
// 128 KiB; then readers go past the cache too, if such files can be mapped.
//
// How the other handles of the file go decides, too (PageCache::enter). `then` may run later.
void enter_cache(FileSystem& file_system, OpenFile& open, const fuse_file_info& info,
                 std::function<void(const fuse_file_info&)> then) {
  const int mode = info.flags & O_ACCMODE;
  open.cache.may_read = may_read(info);
  open.cache.may_write = open.may_write();
  open.cache.prefers_past = open.may_write() ? mode != O_RDWR : !file_system.cached_reads();
  const bool must_reach_us = !open.may_write() && file_system.access_is_due(*open.inode);
  auto answer = [&file_system, &open, must_reach_us, asked = info, then = std::move(then)] {
    // The reads may be answered from the pages that are there, so the access time moves now.
    if (must_reach_us && open.inode->has_pages.load()) {
      file_system.note_access(*open.inode);
      file_system.invalidate_attributes(*open.inode);
    }
    fuse_file_info answered = asked;
    answered.direct_io = open.cache.goes_past;
    answered.keep_cache = true;
    // A reader's close has nothing to report, so it need not wait for an answer.
    answered.noflush = !open.may_write();
    answered.fh = OpenHandles::handle(open);
    then(answered);
  };
  const bool is_small = open.file->size() <= kSmallBytes;
  const auto commit = [&open] { return open.file->clean_commit(); };
  file_system.page_cache().enter({*open.inode, commit, open.cache, is_small, must_reach_us}, std::move(answer));
}

// A file that is open for somebody who is about to be told. Its writer is attached.
struct Opened {
  std::shared_ptr<File> file;
  std::shared_ptr<Writer> writer;
  bool has_no_settings = false;  // known; of a file that was just made
};

void remove_handle(FileSystem& file_system, OpenFile& open) {
  file_system.page_cache().leave(*open.inode, open.cache);
  file_system.caught_requests().when_unused(OpenHandles::handle(open), [gone = file_system.handles().remove(open)] {});
}

// The answer did not reach the opener, who was killed.
void remove_unanswered(FileSystem& file_system, OpenFile& open) {
  end_writer(file_system, open.inode, open.file, open.writer, true);
  remove_handle(file_system, open);
}

void reply_opened(fuse_req_t request, Opened opened, Inode& inode, const fuse_file_info& info) {
  FileSystem& file_system = file_system_of(request);
  OpenFile& open = file_system.handles().add(std::move(opened.file), inode, std::move(opened.writer));
  enter_cache(file_system, open, info, [&file_system, &open, &inode, request](const fuse_file_info& answer) {
    file_system.inodes().hold(inode);  // the kernel may forget it with the answer, and the handle needs it
    if (fuse_reply_open(request, &answer) != 0) remove_unanswered(file_system, open);
    file_system.inodes().forget(file_system.inodes().node(inode), 1);
  });
}

void reply_created(fuse_req_t request, Opened opened, Store::Node node, const fuse_file_info& info,
                   HandleShares::Lease handles, std::unique_ptr<Store::Removed> unnamed) {
  FileSystem& file_system = file_system_of(request);
  const uint64_t inode = node.attributes.st_ino;
  Result<fuse_entry_param> entry = make_entry(file_system, std::move(node), std::move(handles));
  if (!entry.is_ok()) {
    end_writer(file_system, nullptr, opened.file, opened.writer, false);
    return reply_status(request, entry.status());
  }
  if (unnamed != nullptr) file_system.inodes().keep(inode, std::move(unnamed));
  Inode& made = file_system.inodes().get(entry->ino);
  if (opened.has_no_settings) made.settings.note_absent(0);  // unless somebody has set one by now
  OpenFile& open = file_system.handles().add(std::move(opened.file), made, std::move(opened.writer));
  enter_cache(file_system, open, info, [&file_system, &open, request, entry = *entry](const fuse_file_info& answer) {
    if (fuse_reply_create(request, &entry, &answer) == 0) return;
    remove_unanswered(file_system, open);
    file_system.inodes().forget(entry.ino, 1);
  });
}

// O_TRUNC: the content goes, and with it the times move, also when there was none. `then` gets the outcome.
void truncate_opened(FileSystem& file_system, const Opened& opened, Handle node,
                     std::function<void(const Status&)> then) {
  const std::shared_ptr<File>& file = opened.file;
  const bool was_empty = file->size() == 0;
  auto truncated = [&file_system, opened, node, was_empty, then = std::move(then)](const ControlRequest&,
                                                                                   const Status& status) {
    constexpr struct timespec kTimes[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
    const Status outcome = status.is_ok() && was_empty ? file_system.store().set_times(node, kTimes).status() : status;
    if (!outcome.is_ok()) (void)opened.file->detach(*opened.writer);
    then(outcome);
  };
  ControlRequest request;
  request.kind = ControlRequest::Kind::kTruncate;
  request.origin = {opened.writer.get(), opened.writer->description().opener, false};
  file_system.control(file, request, std::move(truncated));
}

// A file whose writer failed shows its last committed content once the writer's handle is gone, which the kernel sends
// behind the writer's close, and what it had on the way to the drives has ended. Such an open looks again: for long
// when nobody has the file open, for a while when somebody may keep it so.
constexpr unsigned kLooksAtFailed = 5000;
constexpr unsigned kLooksWhileOpen = 50;
constexpr auto kBetweenOpens = std::chrono::milliseconds(2);

struct Opening {
  fuse_req_t request;
  Inode& inode;
  fuse_file_info info;
  bool kill_set_id;
  std::shared_ptr<HandleShares::Lease> handles;  // of the file
  unsigned looks = 0, looks_while_open = 0;
};

bool looks_again(Opening& opening, const File& file) {
  if (file.error().is_ok()) return false;
  if (opening.inode.opens.load() > 0) ++opening.looks_while_open;
  return ++opening.looks < kLooksAtFailed && opening.looks_while_open < kLooksWhileOpen;
}

// The kernel forgets the size of content that was given up, before the opener reads by it.
void correct_size(FileSystem& file_system, Inode& inode) {
  unsigned doubts = inode.size_doubts.load();
  if (doubts == 0) return;
  file_system.invalidate_attributes(inode);
  inode.size_doubts.compare_exchange_strong(doubts, 0);
}

void open_node(Opening opening);

bool is_away(const File& file) {
  return file.info().codec_chunks[static_cast<size_t>(Codec::kAway)] > 0;
}

void open_node(Opening opening) {
  const auto& [request, inode, info, kill_set_id, handles, looks, looks_while_open] = opening;
  FileSystem& file_system = file_system_of(request);
  const bool truncates = (info.flags & O_TRUNC) != 0;
  Result<std::shared_ptr<File>> file = file_system.store().open_file(inode.handle, may_write(info) || truncates);
  if (!file.is_ok()) return reply_status(request, file.status());
  // Another node has replaced or removed it since the kernel looked: with ESTALE it looks again.
  if (!file_system.is_alone() && (*file)->is_nameless()) {
    fuse_reply_err(request, ESTALE);
    return;
  }
  // Whoever changes a part of a file needs the rest of it. Where other nodes share the store, what lies there only may
  // be replaced at any time: so it is brought to the drives before.
  if (!file_system.is_alone() && may_write(info) && !truncates && is_away(**file))
    return file_system.fetch(*file, nullptr, [opening](const Status& fetched) {
      fetched.is_ok() ? open_node(opening) : reply_status(opening.request, fetched);
    });
  if (looks_again(opening, **file)) return file_system.run_later(kBetweenOpens, [opening] { open_node(opening); });
  hold_opened(**file, std::move(*handles));
  if ((*file)->error().is_ok()) correct_size(file_system, inode);
  if (!truncates) return reply_opened(request, {*file, make_writer(request, **file, info, false)}, inode, info);

  Status status = drop_privileges(file_system, request, inode, kill_set_id);
  if (!status.is_ok()) return reply_status(request, status);
  const Opened opened{*file, make_writer(request, **file, info, false)};
  auto truncated = [opening, opened](const Status& result) {
    if (!result.is_ok()) return reply_status(opening.request, result);
    reply_opened(opening.request, opened, opening.inode, opening.info);
  };
  truncate_opened(file_system, opened, inode.handle, std::move(truncated));
}

// A CREATE, with all that is gone once its worker goes on to the next request.
struct Creation {
  fuse_req_t request;
  Inode& directory;
  std::string name;
  mode_t mode;
  fuse_file_info info;
  bool unnamed;
};

void create_node(const Creation& creation, HandleShares::Lease handles) {
  const fuse_req_t request = creation.request;
  const fuse_file_info& info = creation.info;
  FileSystem& file_system = file_system_of(request);
  Store& store = file_system.store();
  const fuse_ctx& caller = *fuse_req_ctx(request);
  HandleShares::Lease of_node = handles.split(0);  // the handle that it has counts itself
  Result<Store::Created> created = [&] {
    const AsCaller as_caller(caller);
    const Handle parent = creation.directory.handle;
    return creation.unnamed ? store.create_unnamed(parent, creation.mode, std::move(handles))
                            : store.create(parent, creation.name, creation.mode, std::move(handles));
  }();
  // Somebody made the name since the kernel looked, and neither what it is nor what this caller may do with it was
  // checked. With ESTALE the kernel looks again (path_openat with LOOKUP_REVAL) and opens what it finds by the rules.
  if (created.status().code() == StatusCode::kExists && (info.flags & O_EXCL) == 0) {
    fuse_reply_err(request, ESTALE);
    return;
  }
  if (!created.is_ok()) return reply_status(request, created.status());
  const Result<bool> finished = finish_entry(file_system, caller, creation.directory, created->node);
  if (!finished.is_ok()) {
    created->node.handle.reset();
    if (!creation.unnamed) store.take_back(creation.directory.handle, creation.name, false);
    return reply_status(request, finished.status());
  }
  Opened opened{created->file, make_writer(request, *created->file, info, true), !*finished};
  reply_created(request, std::move(opened), std::move(created->node), info, std::move(of_node),
                std::move(created->unnamed));
}

}  // namespace

void open(fuse_req_t request, fuse_ino_t node, fuse_file_info* info) noexcept {
  Inode& inode = file_system_of(request).inodes().get(node);
  const bool kill_set_id = RequestContext::current()->facts.kill_set_id;
  const size_t count = file_system_of(request).store().handles_of_file();
  with_handles(request, count, [request, &inode, info = *info, kill_set_id](auto handles) {
    open_node({request, inode, info, kill_set_id, std::make_shared<HandleShares::Lease>(std::move(handles))});
  });
}

void create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* info) noexcept {
  FileSystem& file_system = file_system_of(request);
  Inode& directory = file_system.inodes().get(parent);
  const mode_t made_with = creation_mode(file_system, directory, mode & 07777, fuse_req_ctx(request)->umask);
  Creation creation{request, directory, name, made_with, *info, RequestContext::current()->facts.unnamed};
  with_handles(request, file_system.store().handles_of_file(),
               [creation = std::move(creation)](auto handles) { create_node(creation, std::move(handles)); });
}

void release(fuse_req_t request, fuse_ino_t, fuse_file_info* info) noexcept {
  FileSystem& file_system = file_system_of(request);
  OpenFile& open = OpenHandles::file(info->fh);
  const bool failed = open.may_write() && !open.file->error().is_ok();
  open.verify_faults.log_all();
  // Usually its closes have committed everything. What came through other handles is not this one's business: the
  // kernel sends a release after close(2) has returned, when another opener may already have truncated the file to
  // write it anew, and an empty file must not replace the old content.
  end_writer(file_system, open.inode, open.file, open.writer, false);
  Inode& inode = *open.inode;
  if (failed) inode.size_doubts.fetch_add(1);
  remove_handle(file_system, open);
  if (failed) file_system.invalidate_attributes(inode);
  fuse_reply_err(request, 0);
}

}  // namespace fpfs::operations
