// ObjectStore: a store outside this machine that holds copies of files, as objects under keys. FileStore keeps them in
// a directory of a mounted filesystem (file_store.h), S3Store in a bucket (s3_store.h).
//
// An object is replaced as a whole: a reader gets one version of it or another. A version is named by its tag.
//
// Keys are paths: components of 1 to 255 bytes joined by '/', 1 to 1024 bytes together with the store's prefix, no NUL,
// no component "." or "..", none that begins with kUnfinishedPrefix. Whether a byte above 0x7f may be anything or must
// be UTF-8 is up to the store. A bad key fails with kInvalidArgument.
//
// Calls return at once, and `done` is called exactly once for each, later and from a thread of the store (FileStore: of
// its executor). It may start further calls. It must not block, and must not destroy the store. Whatever a span refers
// to belongs to the store until then: the store copies no content, so its memory is bounded by what callers give it.
// Of the calls in progress some run, others wait for a connection: callers limit their number by their buffers.
// Two calls in progress that change one key happen in any order.
//
// Durability: a call that changes something and is answered with success is durable. One that failed may have happened.
//
// Errors of every call besides those that it names:
//   kUnreachable      no answer, a slow one, or "come later", until the deadline of the call: try again later
//   kPermission       the credentials are missing, wrong or expired, or do not allow it
//   kWrongStore       no such bucket or directory, another region, or what answers is not such a store
//   kClockSkew        the service refuses the time of this machine
//   kCorruption       what arrived is not what was sent; the store has tried again
//   kNoSpace, kReadOnly, kIoError   as the filesystem or the service says
//   kTooLarge         beyond a limit of the store
//   kRefused          the service refuses it for another reason, which the message has
//   kCancelled        the store was closed before it happened
//
// Thread safety: all methods but close() from any thread, also from inside `done`, with any lock held that `done` does
// not take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace fpfs {

// Small facts that are kept with an object, and returned by head(). Names are 1 to 64 of a-z, 0-9 and '-', and none is
// the beginning of another (libcurl 7.88 would sign them in the wrong order). Values are any bytes. Names and values
// together: at most kMetadataBytesMax, where a byte of a value that is none of a-z A-Z 0-9 - . _ ~ counts as three.
using ObjectMetadata = std::map<std::string, std::string>;
constexpr size_t kMetadataBytesMax = 2048;

struct ObjectInfo {
  std::string key;
  uint64_t size = 0;
  std::string tag;
  int64_t modified_s = 0;   // by the store's clock, seconds since 1970
  ObjectMetadata metadata;  // of head() only
};

struct StoredObject {
  std::string tag;
  // The store said, by a checksum, that it has the bytes that it was given. False where it has no way to say so: read
  // the object back before something relies on it.
  bool verified = false;
};

struct ReadRange {
  size_t length = 0;  // less than asked for only where the object ends
  uint64_t object_size = 0;
  std::string tag;
};

struct ListRequest {
  std::string prefix;        // of keys: "a/b" finds "a/b", "a/bc" and "a/b/c". Empty: all
  bool one_level = false;    // what has a '/' behind the prefix is summed up in ListPage::directories
  unsigned keys_max = 1000;  // of one page, 1 to 1000
  std::string position;      // of the page before; empty: the first page
};

struct ListPage {
  // Each key once. FileStore, AWS and RGW sort them by their bytes, SeaweedFS directory by directory: rely on no order.
  std::vector<ObjectInfo> objects;
  std::vector<std::string> directories;  // each with its '/'
  std::string position;                  // for the next page; empty: there is none
};

struct RemoveFailure {
  std::string key;
  Status status;
};

// An upload in parts that was begun. A value that can be written down, and continued by another process.
struct Upload {
  std::string key;
  std::string id;
};

struct StoredPart {
  uint32_t number = 0;  // 1 is the first
  uint64_t size = 0;
  std::string tag;
  std::string checksum = {};  // of the service's own; goes with the tag wherever that is written down. Empty: none
};

class ObjectStore {
 public:
  // What FileStore writes to until an object is complete begins like this, and no component of a key does.
  static constexpr const char* kUnfinishedPrefix = ".fastpersistfs-unfinished-";
  // Keys of what says whose store this is (tier_marker.h) begin like this. list() has them as it has all others.
  static constexpr const char* kMarkerPrefix = ".fastpersistfs-store";
  static constexpr size_t kKeyBytesMax = 1024;
  static constexpr size_t kComponentBytesMax = 255;

  template <typename T>
  using Done = std::function<void(Result<T>)>;
  using DoneStatus = std::function<void(Status)>;

  virtual ~ObjectStore() = default;

  // What an operator knows it by: the URL, without secrets.
  virtual std::string describe() const = 0;
  // What a part of an upload must have, but for the last, and how many there may be.
  virtual uint64_t part_size_min() const = 0;
  virtual uint64_t part_size_max() const = 0;
  virtual uint32_t part_count_max() const = 0;

  // Whether the store is there and lets us list what it has below its prefix. Whose it is: check_tier(), tier_marker.h.
  virtual void check(DoneStatus done) = 0;

  // Writes a whole object. The content is hashed before this returns, where the service can check it (0.1 to 1.3 ms for
  // each MiB).
  virtual void put(const std::string& key, std::span<const std::byte> content, const ObjectMetadata& metadata,
                   Done<StoredObject> done) = 0;

  // Writes an object in parts, which may go at the same time and in any order: begin, every part, finish. All parts but
  // the last have one size. Nothing is visible under the key until finish. A part may be written again. An upload that
  // is neither finished nor aborted occupies space for ever: uploads() finds it.
  virtual void begin_upload(const std::string& key, const ObjectMetadata& metadata, Done<Upload> done) = 0;
  // `offset`: where the part lies in the object, (number - 1) times the size of the parts before.
  // kNotFound: there is no such upload (it was aborted or finished).
  virtual void put_part(const Upload& upload, uint32_t number, uint64_t offset, std::span<const std::byte> content,
                        Done<StoredPart> done) = 0;
  // The parts of an upload that are stored, to continue it in another process; all others are to be written again. A
  // store that cannot know after a crash (FileStore) says that there are none. kNotFound as above.
  virtual void parts(const Upload& upload, Done<std::vector<StoredPart>> done) = 0;
  // `parts`: all of them, in order. Finishing again what was finished is kNotFound, unless the service still knows.
  virtual void finish_upload(const Upload& upload, std::vector<StoredPart> parts, Done<StoredObject> done) = 0;
  // Frees what was stored. Success also when there is no such upload.
  virtual void abort_upload(const Upload& upload, DoneStatus done) = 0;
  // The uploads below a prefix of keys that are neither finished nor aborted, whoever began them.
  virtual void uploads(const std::string& prefix, Done<std::vector<Upload>> done) = 0;

  // Reads [offset, offset + into.size()) of an object, as far as it goes. With `tag` not empty, of that version:
  // kNotFound when the object is not there or is another version by now. What arrives is not checked: services have no
  // checksum of a range. The content of `into` is undefined after a failure.
  virtual void get(const std::string& key, uint64_t offset, std::span<std::byte> into, const std::string& tag,
                   Done<ReadRange> done) = 0;
  virtual void head(const std::string& key, Done<ObjectInfo> done) = 0;  // kNotFound
  // What changes while it is listed may be in the pages or not.
  virtual void list(const ListRequest& request, Done<ListPage> done) = 0;
  // Makes an object of what another one is: the store copies it, its content does not pass this machine where the store
  // can do without. With `tag` not empty, of that version. Without `metadata` the new object has those of the old one.
  // It replaces `to` as put() does. kNotFound: there is no `from`, or it is another version by now. kInvalidArgument:
  // the two keys are the same. kUnsupported: the service cannot.
  virtual void copy(const std::string& from, const std::string& tag, const std::string& to,
                    const std::optional<ObjectMetadata>& metadata, Done<StoredObject> done) = 0;
  // Success also when there is no such object.
  virtual void remove(const std::string& key, DoneStatus done) = 0;
  // At most 1000 keys. The keys that could not be removed; an error when none could.
  virtual void remove_many(std::vector<std::string> keys, Done<std::vector<RemoveFailure>> done) = 0;

  // Ends what is in progress, with kCancelled where it had not happened, and returns when every `done` has returned.
  // Calls after that are kCancelled. Not from inside a `done`.
  virtual void close() = 0;
};

}  // namespace fpfs
