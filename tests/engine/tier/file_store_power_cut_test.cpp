// FileStore on a simulated filesystem: power cuts at every step, and calls that fail.
#include <gtest/gtest.h>

#include "engine/io/sim/sim_environment.h"
#include "engine/tier/file_store.h"
#include "tests/support/sanitizers.h"

namespace fpfs {
namespace {

class SimulatedStore {
 public:
  explicit SimulatedStore(uint64_t seed) : world_(seed, options()) {}

  SimEnvironment& world() { return world_; }
  void open() {
    store_ =
        FileStore::open(world_.storage(), world_.executor(), "/m0", [this] { return world_.random_u64(); }).value();
  }
  void close() { store_.reset(); }
  // Runs the world until the answer is there, or until it stands still.
  template <typename Answer, typename Start>
  Answer call(Start start) {
    std::optional<Answer> answer;
    start(*store_, [&](Answer given) { answer = std::move(given); });
    world_.run_until([&] { return answer.has_value(); });
    return *answer;
  }
  Result<StoredObject> put(const std::string& key, const std::string& content) {
    return call<Result<StoredObject>>([&](FileStore& store, auto done) {
      store.put(key, std::as_bytes(std::span(content)), {{"m", "v"}}, done);
    });
  }
  Result<StoredObject> upload(const std::string& key, const std::string& content) {
    const auto begun = call<Result<Upload>>([&](FileStore& store, auto done) {
      store.begin_upload(key, {{"m", "v"}}, done);
    });
    if (!begun.is_ok()) return begun.status();
    std::vector<StoredPart> parts;
    const size_t half = content.size() / 2;
    for (uint32_t number = 1; number <= 2; ++number) {
      const size_t offset = (number - 1) * half;
      const auto bytes = std::as_bytes(std::span(content)).subspan(offset, number == 1 ? half : content.size() - half);
      const auto part = call<Result<StoredPart>>(
          [&](FileStore& store, auto done) { store.put_part(*begun, number, offset, bytes, done); });
      if (!part.is_ok()) return part.status();
      parts.push_back(*part);
    }
    return call<Result<StoredObject>>([&](FileStore& store, auto done) { store.finish_upload(*begun, parts, done); });
  }
  Result<StoredObject> copy(const std::string& from, const std::string& to) {
    return call<Result<StoredObject>>([&](FileStore& store, auto done) { store.copy(from, "", to, {}, done); });
  }
  // Nothing when there is no such object.
  std::optional<std::string> content(const std::string& key) {
    std::string content(100'000, '\0');
    const auto range = call<Result<ReadRange>>(
        [&](FileStore& store, auto done) { store.get(key, 0, std::as_writable_bytes(std::span(content)), "", done); });
    if (!range.is_ok()) return std::nullopt;
    content.resize(range->length);
    return content;
  }

 private:
  static SimOptions options() {
    SimOptions options;
    options.mount_paths = {"/m0"};
    return options;
  }
  SimEnvironment world_;
  std::unique_ptr<FileStore> store_;
};

std::string text_of(uint64_t number) {
  std::string text;
  for (size_t i = 0; text.size() < 20'000; ++i) text += fmt::format("{}:{} ", number, i);
  return text;
}

enum class How { kPut, kUpload, kCopy };

Result<StoredObject> replace(SimulatedStore& store, How how, const std::string& after) {
  if (how == How::kPut) return store.put("d/x", after);
  if (how == How::kUpload) return store.upload("d/x", after);
  return store.copy("other", "d/x");
}

// One life: an object is replaced by a put, an upload in parts or a copy, and the power goes at some step. Afterwards
// it is the old one or the new one, and the new one when that was answered with success.
void live(uint64_t seed, uint64_t boundary, How how, bool& was_cut) {
  SimulatedStore store(seed);
  store.open();
  const std::string before = text_of(1), after = text_of(2);
  ASSERT_TRUE(store.put("d/x", before).is_ok());
  ASSERT_TRUE(store.put("other", after).is_ok());
  store.world().cut_at(store.world().boundaries() + boundary);
  const bool succeeded = replace(store, how, after).is_ok();
  const bool also_new = succeeded && store.put("new/directory/y", after).is_ok();
  was_cut = store.world().is_off();
  store.world().stop();
  store.close();
  store.world().crash();

  store.open();
  const auto found = store.content("d/x");
  ASSERT_TRUE(found.has_value()) << "seed " << seed << ", cut " << boundary;
  EXPECT_TRUE(*found == after || (!succeeded && *found == before)) << "seed " << seed << ", cut " << boundary;
  const auto other = store.content("new/directory/y");
  EXPECT_TRUE(other.has_value() ? *other == after : !also_new) << "seed " << seed << ", cut " << boundary;
}

TEST(FileStorePowerCutTest, AnObjectIsOldOrNew) {
  const uint64_t seeds = test::alike(20);
  for (const How how : {How::kPut, How::kUpload, How::kCopy})
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      bool was_cut = true;
      uint64_t boundary = 1;
      for (; was_cut; ++boundary) ASSERT_NO_FATAL_FAILURE(live(seed, boundary, how, was_cut));
      EXPECT_GT(boundary, 10u) << "nothing was cut";
    }
}

// Every call on the filesystem fails once, each in a life of its own.
TEST(FileStorePowerCutTest, AFailedCallIsReportedAndLeavesTheOldObject) {
  for (const auto& [error, how] : std::vector<std::pair<int, How>>{
           {EIO, How::kPut}, {ENOSPC, How::kPut}, {EROFS, How::kPut}, {EIO, How::kCopy}, {ENOSPC, How::kCopy}}) {
    bool hit = true;
    for (uint64_t nth = 1; hit; ++nth) {
      SimulatedStore store(nth);
      store.open();
      ASSERT_TRUE(store.put("d/x", text_of(1)).is_ok());
      ASSERT_TRUE(store.put("other", text_of(2)).is_ok());
      SimFault fault;
      fault.call = SimFault::Call::kAny;
      fault.error = error;
      fault.nth = nth;
      store.world().sim().inject(fault);
      const Result<StoredObject> put = replace(store, how, text_of(2));
      hit = store.world().sim().fault_hits() > 0;
      store.world().sim().clear_faults();
      if (!put.is_ok()) {
        EXPECT_TRUE(put.status().code() == Status::from_errno(error, "x").code()) << put.status().message();
        EXPECT_EQ(put.status().message().find('\n'), std::string::npos);
      }
      const auto found = store.content("d/x");
      ASSERT_TRUE(found.has_value()) << nth;
      EXPECT_TRUE(*found == text_of(2) || (!put.is_ok() && *found == text_of(1))) << nth;
      store.close();
    }
  }
}

}  // namespace
}  // namespace fpfs
