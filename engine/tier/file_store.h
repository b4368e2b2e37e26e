// FileStore: objects as plain files below a directory of a mounted filesystem (CephFS, Lustre, NFS, ...): the object of
// key a/b is the file a/b. Directories come with the objects in them and go with the last one.
//
// An object is written to kUnfinishedPrefix + "objects" in the same directory tree, synced, renamed to its name, and
// the directories that have changed are synced: it is there as a whole or not at all, also after a power cut of this
// machine, given that the filesystem keeps what it says of fsync. Metadata are extended attributes
// (user.fastpersistfs.meta.NAME); kWrongStore where the filesystem takes none. A tag is made of inode, time of change
// and size. Nobody has checked a checksum: StoredObject::verified is false.
//
// What is no regular file is no object: symbolic links are neither followed nor listed. kExists: a file is where a
// directory is needed, or the other way round. Filesystems that are gone (ENOTCONN, ESTALE, ...) are kUnreachable,
// and so is one that gives I/O errors whatever is asked; one that gives them of an object only is kIoError.
// A copy shares blocks where the filesystem can, or is made by copy_file_range(2), or read and written with 1 MiB of
// memory; then it is published as what was put is. Parts of uploads are synced as they come. What a put left that was
// cut off is removed by uploads(), a day later.
//
// A page of list() reads the directories on its way as a whole and holds their names.
//
// check() opens the directory again by its path, as it is mounted then, and remembers what says whose store this is
// (tier_marker.h). From then on it fails where that is missing or another one: kWrongStore; a new FileStore remembers
// nothing. When the filesystem is gone and mounted again, calls open the directory again, given that it says the same;
// an empty mount point is kUnreachable, and nothing is written there.
//
// With a lease (tier_lease.h) what changes the store waits for it before it begins, and again before an object gets its
// name. What a network filesystem does not let go of meanwhile is its own.
//
// Threads: calls block in the filesystem, on the executor. A network filesystem may hang: give it an executor that
// nothing else waits for.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/base/mutex.h"
#include "engine/io/executor.h"
#include "engine/io/scoped_handle.h"
#include "engine/io/storage.h"
#include "engine/tier/object_store.h"
#include "engine/tier/tier_lease.h"

namespace fpfs {

class FileStore final : public ObjectStore {
 public:
  using Random = std::function<uint64_t()>;  // from any thread

  // `path`: a directory that exists. kWrongStore when it does not. Blocks.
  static Result<std::unique_ptr<FileStore>> open(Storage& storage, Executor& executor, const std::string& path,
                                                 Random random);
  // The same with an executor of its own. `lease`: ends with the store; null: changes need none.
  static Result<std::unique_ptr<FileStore>> open(Storage& storage, std::unique_ptr<Executor> executor,
                                                 const std::string& path, Random random,
                                                 std::shared_ptr<TierLease> lease = nullptr);
  ~FileStore() override;

  std::string describe() const override { return "file://" + path_; }
  uint64_t part_size_min() const override { return 1; }
  uint64_t part_size_max() const override { return INT64_MAX; }
  uint32_t part_count_max() const override { return UINT32_MAX; }

  void check(DoneStatus done) override;
  void put(const std::string& key, std::span<const std::byte> content, const ObjectMetadata& metadata,
           Done<StoredObject> done) override;
  void begin_upload(const std::string& key, const ObjectMetadata& metadata, Done<Upload> done) override;
  void put_part(const Upload& upload, uint32_t number, uint64_t offset, std::span<const std::byte> content,
                Done<StoredPart> done) override;
  void parts(const Upload& upload, Done<std::vector<StoredPart>> done) override;
  void finish_upload(const Upload& upload, std::vector<StoredPart> parts, Done<StoredObject> done) override;
  void abort_upload(const Upload& upload, DoneStatus done) override;
  void uploads(const std::string& prefix, Done<std::vector<Upload>> done) override;
  void get(const std::string& key, uint64_t offset, std::span<std::byte> into, const std::string& tag,
           Done<ReadRange> done) override;
  void head(const std::string& key, Done<ObjectInfo> done) override;
  void list(const ListRequest& request, Done<ListPage> done) override;
  void copy(const std::string& from, const std::string& tag, const std::string& to,
            const std::optional<ObjectMetadata>& metadata, Done<StoredObject> done) override;
  void remove(const std::string& key, DoneStatus done) override;
  void remove_many(std::vector<std::string> keys, Done<std::vector<RemoveFailure>> done) override;
  void close() override;

 private:
  struct Directory;  // of a key, open
  struct Unfinished;

  FileStore(Storage& storage, Executor& executor, std::string path, ScopedHandle root, Random random);

  // Runs `work` on the executor and hands what it returns to `done`.
  template <typename Answer, typename Work>
  void run(std::function<void(Answer)> done, Work work, bool changes = false);
  // What a failure says of the store: kUnreachable when it is of every object.
  Status judge(const Status& failure, bool changes);
  // Whether anything can be read, or written, at all.
  Status probe(bool changes);
  template <typename T>
  T judged(T answer, bool changes) {
    if (answer.is_ok()) return answer;
    return judge(status_of(answer), changes);
  }
  // The same of work that changes what is stored.
  template <typename Answer, typename Work>
  void change(std::function<void(Answer)> done, Work work);
  Status may_change() { return lease_ == nullptr ? Status::ok() : lease_->wait(); }
  bool enter() FPFS_EXCLUDES(mutex_);
  void leave() FPFS_EXCLUDES(mutex_);
  bool is_closed() FPFS_EXCLUDES(mutex_);

  // The work itself. Each blocks.
  Status do_check();
  Result<StoredObject> do_put(const std::string& key, std::span<const std::byte> content,
                              const ObjectMetadata& metadata);
  Result<Upload> do_begin(const std::string& key, const ObjectMetadata& metadata);
  Result<StoredPart> do_put_part(const Upload& upload, uint32_t number, uint64_t offset,
                                 std::span<const std::byte> content);
  Result<StoredObject> do_finish(const Upload& upload, const std::vector<StoredPart>& parts);
  Status do_abort(const Upload& upload);
  Result<std::vector<Upload>> do_uploads(const std::string& prefix);
  Result<ReadRange> do_get(const std::string& key, uint64_t offset, std::span<std::byte> into, const std::string& tag);
  Result<ObjectInfo> do_head(const std::string& key);
  Result<ListPage> do_list(const ListRequest& request);
  Result<StoredObject> do_copy(const std::string& from, const std::string& tag, const std::string& to,
                               const std::optional<ObjectMetadata>& metadata);
  Status do_remove(const std::string& key);

  Result<ScopedHandle> root_again() FPFS_EXCLUDES(mutex_);
  // After `failure`, of a filesystem that is gone: another handle of the directory, when it is the same store.
  Result<ScopedHandle> root_of_new_mount(const Status& failure) FPFS_EXCLUDES(mutex_);
  // Who a store below `root` is. Empty: nothing says so.
  Result<std::string> identity_below(Handle root);
  // The directory that `key` lies in; made where it is not there, if asked for.
  Result<Directory> directory_of(const std::string& key, bool make);
  Result<ScopedHandle> unfinished_directory();
  Result<ScopedHandle> open_object(const std::string& key);
  Status set_metadata(Handle file, const ObjectMetadata& metadata);
  Result<ObjectMetadata> metadata_of(Handle file);
  // Makes an object of a file that `fill` writes.
  Result<StoredObject> write_object(const std::string& key, const ObjectMetadata& metadata,
                                    const std::function<Status(Handle file)>& fill);
  Status copy_content(Handle from, uint64_t size, Handle to);
  // Gives a synced file its name, which is durable then.
  Result<StoredObject> publish(Handle unfinished, const std::string& name, Handle file, const std::string& key);
  Result<Unfinished> read_unfinished(Handle unfinished, const std::string& id);
  Status sync_file(Handle file);

  Storage& storage_;
  Executor& executor_;
  const std::string path_;
  const Random random_;
  std::shared_ptr<TierLease> lease_;  // may be null

  Mutex mutex_;
  CondVar ended_;
  std::shared_ptr<const ScopedHandle> root_ FPFS_GUARDED_BY(mutex_);  // never null
  std::string identity_ FPFS_GUARDED_BY(mutex_);                      // empty: not known
  bool closed_ FPFS_GUARDED_BY(mutex_) = false;
  size_t running_ FPFS_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<Executor> own_executor_;  // may be null; its threads end before what is above
};

}  // namespace fpfs
