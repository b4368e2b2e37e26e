// An array in a simulated world with synchronous calls: each runs the world until its request is answered.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/io/sim/sim_environment.h"
#include "engine/store/store.h"

namespace fpfs::test {

using Bytes = std::vector<std::byte>;

constexpr uint32_t kTestChunk = 64 * kKiB;

class SimArray {
 public:
  explicit SimArray(uint64_t seed, unsigned members = 3, StoreOptions options = {}, uint32_t chunk_size = kTestChunk,
                    unsigned more_drives = 0)
      : paths_(make_paths(members)),
        world_(seed, {.mount_paths = make_paths(members + more_drives)}),
        options_(std::move(options)) {
    if (options_.buffer_memory > 64 * kMiB) options_.buffer_memory = uint64_t{36} * chunk_size;
    options_.commit_log = false;
    FormatOptions format;
    format.chunk_size = chunk_size;
    const Status status = Array::format(world_, paths_, format);
    EXPECT_TRUE(status.is_ok()) << status.message();
    open();
  }
  // Goes on from a world that was saved (SimStorage::save) with as many members. The array is not open yet.
  SimArray(uint64_t seed, unsigned members, const StoreOptions& options, const SimWorld& begin)
      : paths_(make_paths(members)), world_(seed, {.mount_paths = paths_}), options_(options) {
    if (options_.buffer_memory > 64 * kMiB) options_.buffer_memory = 36 * kTestChunk;
    options_.commit_log = false;
    sim().restore(begin);
  }
  ~SimArray() {
    world_.stop();
    store_.reset();
  }

  SimEnvironment& world() { return world_; }
  SimStorage& sim() { return world_.sim(); }
  Store& store() { return *store_; }
  const std::vector<std::string>& paths() const { return paths_; }
  void set_paths(std::vector<std::string> paths) { paths_ = std::move(paths); }
  // From the next open() on.
  void set_read_ahead(unsigned chunks) { options_.read_ahead = chunks; }
  // From the next open() on. Else none: it takes 2 MiB, and drives are small in many tests.
  void use_commit_log() { options_.commit_log = true; }

  void open() {
    const Status status = try_open_array();
    ASSERT_TRUE(status.is_ok()) << status.message();
  }
  Status try_open_array(bool read_only = false) {
    StoreOptions options = options_;
    options.array.read_only = read_only;
    FPFS_ASSIGN_OR_RETURN(store_, Store::open(world_, paths_, options));
    return Status::ok();
  }
  Status close() {
    const Status result = outcome_of([this](auto done) { store_->close_async(std::move(done)); });
    kill();
    return result;
  }
  Status sync_all() {
    return outcome_of([this](auto done) {
      store_->commit_all(ControlRequest::Kind::kCommit, ControlRequest::Unfinished::kLeftAlone,
                         [done = std::move(done)](const Store::CommitOutcome& outcome) { done(outcome.status); });
    });
  }
  void crash() {
    leave();
    world_.crash();
  }
  void kill() {
    leave();
    world_.kill();
  }

  std::shared_ptr<File> create(const std::string& name) {
    Result<Store::Created> created = store_->create(store_->root(), name, 0644);
    EXPECT_TRUE(created.is_ok()) << created.status().message();
    created->node.handle.reset();
    return created->file;
  }
  Result<std::shared_ptr<File>> try_open(const std::string& name) {
    FPFS_ASSIGN_OR_RETURN(Store::Node node, store_->lookup(store_->root(), name));
    Result<std::shared_ptr<File>> file = store_->open_file(node.handle.get(), !store_->read_only());
    node.handle.reset();
    return file;
  }
  std::shared_ptr<File> open(const std::string& name) {
    Result<std::shared_ptr<File>> file = try_open(name);
    EXPECT_TRUE(file.is_ok()) << file.status().message();
    return *file;
  }
  uint64_t size_of(const std::string& name) {
    Result<Store::Node> node = store_->lookup(store_->root(), name);
    EXPECT_TRUE(node.is_ok()) << node.status().message();
    node->handle.reset();
    return static_cast<uint64_t>(node->attributes.st_size);
  }

  Status write(File& file, uint64_t offset, std::span<const std::byte> data) {
    Answer<WriteRequest> answer;
    answer.request.offset = FileOffset(offset);
    answer.request.length = static_cast<uint32_t>(data.size());
    answer.request.data = data.data();
    file.write(answer.request);
    return wait(answer);
  }
  Status control(File& file, ControlRequest::Kind kind, uint64_t offset = 0, uint64_t length = 0) {
    Answer<ControlRequest> answer;
    answer.request.kind = kind;
    answer.request.offset = FileOffset(offset);
    answer.request.length = length;
    file.control(answer.request);
    return wait(answer);
  }
  Status commit(File& file) { return control(file, ControlRequest::Kind::kCommit); }
  Result<Bytes> read(File& file, uint64_t offset, uint32_t length, ReadCursor* cursor = nullptr) {
    Read answer(offset, length);
    answer.request.cursor = cursor;
    file.read(answer.request);
    FPFS_RETURN_IF_ERROR(wait(answer));
    return std::move(answer.data);
  }
  // Of what this mount has counted: count(MemberStatus).
  template <typename Count>
  uint64_t sum_over_members(Count count) {
    uint64_t total = 0;
    for (const MemberStatus& member : store().status().members) total += count(member);
    return total;
  }
  uint64_t bytes_read() {
    return sum_over_members([](const MemberStatus& member) { return member.bytes_read; });
  }
  // The whole content; the first failure ends it.
  Result<Bytes> read_all(File& file) {
    Bytes content;
    ReadCursor cursor;
    while (content.size() < file.size()) {
      FPFS_ASSIGN_OR_RETURN(const Bytes piece, read(file, content.size(), 150'000, &cursor));
      if (piece.empty()) break;
      content.insert(content.end(), piece.begin(), piece.end());
    }
    return content;
  }

  // A request and what came of it.
  template <typename Request>
  struct Answer {
    Answer() {
      request.owner = this;
      request.complete = [](Request& done, const Status& result) { static_cast<Answer*>(done.owner)->finish(result); };
    }
    void finish(const Status& result) {
      EXPECT_FALSE(answered) << "answered twice";
      answered = true;
      status = result;
    }
    Request request;
    Status status;
    bool answered = false;
  };
  // One whose bytes are kept.
  struct Read : Answer<ReadRequest> {
    Read(uint64_t offset, uint32_t length) {
      request.offset = FileOffset(offset);
      request.length = length;
      request.complete = [](ReadRequest& done, const Status& result) {
        auto& self = *static_cast<Read*>(done.owner);
        for (unsigned i = 0; result.is_ok() && i < done.iov_count; ++i) {
          const auto* bytes = static_cast<const std::byte*>(done.iov[i].iov_base);
          self.data.insert(self.data.end(), bytes, bytes + done.iov[i].iov_len);
        }
        self.finish(result);
      };
    }
    Bytes data;
  };
  template <typename Request>
  Status wait(Answer<Request>& answer) {
    EXPECT_TRUE(world_.run_until([&answer] { return answer.answered; })) << "a request was not answered";
    return answer.status;
  }

 private:
  // Calls `start` with what it is to call at the end.
  template <typename Start>
  Status outcome_of(Start start) {
    std::optional<Status> result;
    start([&result](const Status& status) { result = status; });
    EXPECT_TRUE(world_.run_until([&result] { return result.has_value(); })) << "a call was not answered";
    return result.value_or(Status::error(StatusCode::kSystem, "no answer"));
  }
  void leave() {
    world_.stop();
    store_.reset();
    EXPECT_TRUE(sim().open_handles().empty()) << sim().open_handles().front();
  }
  static std::vector<std::string> make_paths(unsigned members) {
    std::vector<std::string> paths;
    for (unsigned i = 0; i < members; ++i) paths.push_back("/m" + std::to_string(i));
    return paths;
  }
  std::vector<std::string> paths_;
  SimEnvironment world_;
  StoreOptions options_;
  std::unique_ptr<Store> store_;
};

// Position-dependent, different for every salt.
inline Bytes make_bytes(size_t length, uint64_t salt) {
  Bytes data(length);
  for (size_t i = 0; i < length; i += sizeof(uint64_t)) {
    const uint64_t word = SimRandom(salt * 0x10001 + i).next();
    std::memcpy(data.data() + i, &word, std::min(sizeof word, length - i));
  }
  return data;
}

}  // namespace fpfs::test
