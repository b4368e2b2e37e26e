// S3Store: objects in a bucket of a service that speaks S3 (AWS, Ceph RGW, MinIO, SeaweedFS, ...), under a prefix.
//
// Keys must be UTF-8. They are asked for as http://host:port/bucket/key ("path style"). A part of an upload has 5 MiB
// to 5 GiB, but for the last; a put has at most 5 GiB. A tag is the service's ETag.
//
// Content is sent with its CRC32C (x-amz-checksum-crc32c). A service that knows it checks it and answers it: `verified`
// is true then, whatever a tag is. To a service that did not answer it, or is not known yet, content is sent with its
// MD5 (Content-MD5), which it checks. Most services also name the object by it; then that is compared, and `verified`
// is true. A tag that is something else (encryption by KMS) verifies nothing. A checksum or an MD5 that is another one
// is kCorruption, after kCorruptionAttemptsMax attempts. A service that refuses a request with checksums is asked once
// without; when it takes that, it gets none from then on.
//
// An upload has checksums for all of its parts or for none: Upload::id says which, of uploads() only where the service
// lists it (AWS). To finish, the service wants the checksum of each part. Parts that come without one
// (StoredPart::checksum) are looked up; one whose checksum the service does not list (SeaweedFS) is missing in parts(),
// and kNotFound for finish_upload(): write it again.
//
// A copy is made by one request, above 5 GiB by one for each GiB, four at a time. `verified` is true where the service
// calls the copy by the same MD5 or checksum as the original. `from` may be replaced meanwhile: If-Match, and where a
// service ignores that, a look afterwards; kNotFound then, and `to` may have the other version.
//
// A call is tried again while it fails for the moment: no connection, a broken one, nothing for 30 s, HTTP 429, 500,
// 503 and the like, wrong checksums. Pauses: retry_policy.h. The last attempt begins before the deadline (TierUrl) and
// ends when the service answers, or 30 s after it sent its last byte. An upload whose finish was done and not answered
// is recognised by its tag.
//
// With a lease (tier_lease.h) nothing that changes the store is begun, tried again or sent on without it: what is on its
// way when it has run out is given up within a second, and tried again once it is known that it may be.
//
// Threads: one, of HttpClient, on which every `done` is called. Asking for the credentials of a role holds it up for
// at most 6 s (credentials.h).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "engine/tier/credentials.h"
#include "engine/tier/http_client.h"
#include "engine/tier/object_store.h"
#include "engine/tier/retry_policy.h"
#include "engine/tier/tier_lease.h"
#include "engine/tier/tier_url.h"

namespace fpfs {

struct S3Failure;

struct S3Options {
  TierUrl url;  // of kind kS3
  CredentialOptions credentials;
  RetryPolicy retry;                 // its deadline is the URL's
  std::shared_ptr<TierLease> lease;  // null: changes need none. Ends with the store
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::seconds stall_timeout{30};
  std::chrono::milliseconds attempt_timeout{0};  // of one attempt as a whole; 0: none
  // What is larger is copied in parts, each of that size. Limits of the service; smaller for tests.
  uint64_t copy_bytes_max = uint64_t{5} << 30;
  uint64_t copy_part_bytes = uint64_t{1} << 30;
};

class S3Store final : public ObjectStore {
 public:
  static constexpr unsigned kCorruptionAttemptsMax = 3;

  explicit S3Store(const S3Options& options);
  ~S3Store() override;

  std::string describe() const override { return fpfs::describe(options_.url); }
  uint64_t part_size_min() const override { return uint64_t{5} << 20; }
  uint64_t part_size_max() const override { return uint64_t{5} << 30; }
  uint32_t part_count_max() const override { return 10'000; }

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
  struct Call;
  struct Finish;
  struct Copy;
  struct CheckedInfo {
    ObjectInfo info;
    std::string checksum;  // empty: not known
  };
  // What is known of the service: whether it checks the checksums of s3_checksum.h, and says so.
  enum class Checksums : uint8_t { kUnknown, kAnswered, kNone };
  using Query = std::map<std::string, std::string>;
  using SharedCall = std::shared_ptr<Call>;

  SharedCall make_call(const std::string& method, const std::string& key, const Query& query) const;
  void start(const SharedCall& call);
  // The rest on the client's thread:
  void attempt(const SharedCall& call);
  void send(const SharedCall& call);
  void answered(const SharedCall& call, const HttpResponse& response);
  void failed(const SharedCall& call, const S3Failure& failure);
  void try_again(const SharedCall& call, const S3Failure& failure);
  void learn_of_checksums(const Call& call, const HttpResponse& response);
  // Answers a call with `status` from the client's thread, never from inside the caller's.
  void fail_later(Status status, DoneStatus done);
  Status check_s3_key(const std::string& key) const;
  void fetch_parts(const Upload& upload, const std::string& after, std::vector<StoredPart> found,
                   Done<std::vector<StoredPart>> done);
  void fetch_uploads(const std::string& prefix, const std::string& key, const std::string& id,
                     std::vector<Upload> found, Done<std::vector<Upload>> done);
  static Finish expect_of(const Upload& upload, const std::vector<StoredPart>& parts);
  static bool is_finished(const Finish& expected, const CheckedInfo& found);
  // Each part of an upload with checksums has one.
  void finish_checked(const Upload& upload, const std::vector<StoredPart>& parts, const Done<StoredObject>& done);
  void ask_for_upload(const SharedCall& finish, const Finish& expected, const Done<StoredObject>& done);
  void ask_for_tag(const Finish& expected, const Done<StoredObject>& done);
  void find_finished(const Finish& expected, const Status& failure, const Done<StoredObject>& done);
  void head_with_checksum(const std::string& key, const Done<CheckedInfo>& done, bool with_checksum = true);
  // The steps of a copy (s3_copying.cpp).
  using SharedCopy = std::shared_ptr<Copy>;
  void begin_copy(const SharedCopy& copy);
  void other_version(const SharedCopy& copy);
  SharedCall copy_call(const SharedCopy& copy, const Query& query, uint64_t length) const;
  void copy_whole(const SharedCopy& copy);
  void copy_in_parts(const SharedCopy& copy);
  void copy_next_part(const SharedCopy& copy);
  void part_copied(const SharedCopy& copy, const Status& status);
  void end_copy(const SharedCopy& copy, const StoredObject& stored);
  void read_end(const std::string& key, const std::string& tag, const Done<ReadRange>& done);
  void remove_singly(const std::vector<std::string>& keys, const Done<std::vector<RemoveFailure>>& done);

  const S3Options options_;
  CredentialSource credentials_;                    // of the client's thread
  std::mt19937_64 random_{std::random_device{}()};  // of the client's thread
  std::atomic<Checksums> checksums_ = Checksums::kUnknown;
  HttpClient client_;
};

}  // namespace fpfs
