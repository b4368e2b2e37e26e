// What changes a store goes on under a lease only: S3Store and FileStore whose copies become another array's meanwhile.
#include "engine/tier/tier_lease.h"

#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "engine/io/posix_storage.h"
#include "engine/io/thread_executor.h"
#include "engine/tier/file_store.h"
#include "tests/engine/tier/s3_session.h"
#include "tests/support/temporary_directory.h"

namespace fpfs {
namespace {

using std::chrono::milliseconds;
using test::BlockingStore;
using test::error_reply;
using test::FaultyServer;
using test::ServerReply;
using test::ServerRequest;
using test::Session;
using test::stored;

constexpr milliseconds kShort{200};
constexpr const char* kArray = "11111111-2222-4333-8444-555555555555";

// The fence lies in a directory, whatever store it is asked for.
class TierLeaseTest : public ::testing::Test {
 protected:
  TierLeaseTest() { set_fence("ours"); }

  void set_fence(const std::string& token) {
    const std::filesystem::path file = directory_ / (std::string(".fastpersistfs-store/fences/") + kArray);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file.string() + ".new") << R"({"format":1,"array":")" << kArray << R"(","token":")" << token << "\"}";
    std::filesystem::rename(file.string() + ".new", file);
  }
  std::unique_ptr<FileStore> open(std::shared_ptr<TierLease> lease = nullptr) {
    return FileStore::open(
               storage_, std::make_unique<ThreadExecutor>(2, "test"), directory_.path(),
               [this] {
                 if (before_publishing_) before_publishing_();
                 return ++random_;
               },
               std::move(lease))
        .value();
  }
  std::shared_ptr<TierLease> lease(milliseconds duration) {
    return std::make_shared<TierLease>(open(), kArray, duration, std::vector<std::string>{"ours"});
  }
  static S3Options leased(const FaultyServer& server, std::shared_ptr<TierLease> lease) {
    S3Options options = Session::options(server.endpoint(), 20);
    options.stall_timeout = std::chrono::seconds(20);
    options.lease = std::move(lease);
    return options;
  }

  test::TemporaryDirectory directory_{test::quick_place()};
  PosixStorage storage_;
  std::atomic<uint64_t> random_ = 0;
  std::function<void()> before_publishing_;  // of an object, between the beginning of its call and its name
};

TEST_F(TierLeaseTest, HoldsWhatIsItsOwnAndIsLostOnce) {
  const auto held = lease(std::chrono::hours(1));
  EXPECT_TRUE(held->wait().is_ok());
  EXPECT_TRUE(held->holds());
  EXPECT_FALSE(held->is_lost());
  const auto lost = lease(kShort);
  EXPECT_TRUE(lost->wait().is_ok());
  set_fence("foreign");
  std::this_thread::sleep_for(kShort);
  EXPECT_EQ(lost->wait().code(), StatusCode::kWrongStore);
  EXPECT_TRUE(lost->is_lost());
  EXPECT_TRUE(held->wait().is_ok()) << "for as long as it lasts";
  lost->own({"foreign"});
  EXPECT_TRUE(lost->wait().is_ok());
  std::this_thread::sleep_for(kShort);
  lost->close();
  EXPECT_EQ(lost->wait().code(), StatusCode::kCancelled);
}

TEST_F(TierLeaseTest, ACallIsNotTriedAgainOnceTheCopiesAreAnothers) {
  FaultyServer server([&](const ServerRequest& request, int count) {
    if (request.method == "GET") return ServerReply{200, {}, "<ListBucketResult/>"};
    if (count == 3) set_fence("foreign");
    return error_reply(503, "SlowDown");
  });
  S3Store store(leased(server, lease(milliseconds(50))));
  const Status failed = BlockingStore(store).put("a", "content").status();
  EXPECT_EQ(failed.code(), StatusCode::kWrongStore) << failed.message();
  const int count = server.count();
  EXPECT_GE(count, 3);
  for (const Status& status : {BlockingStore(store).remove("a"), BlockingStore(store).begin("b").status()})
    EXPECT_EQ(status.code(), StatusCode::kWrongStore) << status.message();
  EXPECT_EQ(server.count(), count);
  static_cast<void>(BlockingStore(store).check());
  EXPECT_GT(server.count(), count) << "reading needs no lease";
}

TEST_F(TierLeaseTest, WhoCannotLookChangesNothingUntilHeCan) {
  std::atomic<bool> answers = false;
  FaultyServer fences([&](const ServerRequest&, int) {
    if (!answers) return error_reply(503, "SlowDown");
    return ServerReply{200, {"ETag: \"t\""}, std::string(R"({"format":1,"array":")") + kArray + R"(","token":"ours"})"};
  });
  FaultyServer server([](const ServerRequest& request, int) { return stored(request); });
  const auto lease = std::make_shared<TierLease>(std::make_unique<S3Store>(Session::options(fences.endpoint(), 1)),
                                                 kArray, std::chrono::hours(1), std::vector<std::string>{"ours"});
  S3Store store(leased(server, lease));
  std::thread later([&] {
    while (fences.count() < 5) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_EQ(server.count(), 0);
    answers = true;
  });
  EXPECT_TRUE(BlockingStore(store).put("a", "content").is_ok());
  later.join();
  EXPECT_EQ(server.count(), 1);
}

// What was so when it was asked may not be so any more.
TEST_F(TierLeaseTest, AnAnswerThatComesTooLateSaysNothing) {
  FaultyServer fences([](const ServerRequest&, int) {
    ServerReply reply{200, {"ETag: \"t\""}, std::string(R"({"format":1,"array":")") + kArray + R"(","token":"ours"})"};
    reply.delay = milliseconds(300);
    return reply;
  });
  TierLease lease(std::make_unique<S3Store>(Session::options(fences.endpoint(), 5)), kArray, milliseconds(200),
                  {"ours"});
  EXPECT_EQ(lease.wait().code(), StatusCode::kUnreachable);
  EXPECT_FALSE(lease.is_lost());
}

TEST_F(TierLeaseTest, ALookThatIsRefusedSaysNothingOfChecksums) {
  std::atomic<bool> refuses = true;  // each look: the store takes one before it waits, and another if that has ended
  FaultyServer fences([&](const ServerRequest&, int) {
    if (refuses) return error_reply(400, "InvalidArgument");
    return ServerReply{200, {"ETag: \"t\""}, std::string(R"({"format":1,"array":")") + kArray + R"(","token":"ours"})"};
  });
  FaultyServer server([](const ServerRequest& request, int) { return stored(request); });
  const auto lease = std::make_shared<TierLease>(std::make_unique<S3Store>(Session::options(fences.endpoint(), 5)),
                                                 kArray, std::chrono::hours(1), std::vector<std::string>{"ours"});
  S3Store store(leased(server, lease));
  EXPECT_FALSE(BlockingStore(store).put("a", "content").is_ok());
  EXPECT_EQ(server.count(), 0);
  refuses = false;
  EXPECT_TRUE(BlockingStore(store).put("a", "content").is_ok());
  ASSERT_EQ(server.count(), 1);
  EXPECT_EQ(server.requests()[0].headers.count("x-amz-checksum-crc32c"), 1U);
}

// A server that takes what comes only once it is told: so long it lies in this machine.
TEST_F(TierLeaseTest, WhatIsOnItsWayIsGivenUpAndNotSentLater) {
  const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int small = 4096;
  ASSERT_EQ(::setsockopt(listener.number(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
  struct sockaddr_in address {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* const generic = reinterpret_cast<struct sockaddr*>(&address);
  ASSERT_EQ(::bind(listener.number(), generic, length), 0);
  ASSERT_EQ(::listen(listener.number(), 8), 0);
  ASSERT_EQ(::getsockname(listener.number(), generic, &length), 0);
  S3Options options = Session::options(fmt::format("http://127.0.0.1:{}", ntohs(address.sin_port)), 20);
  options.stall_timeout = std::chrono::seconds(20);
  options.lease = lease(milliseconds(1000));
  S3Store store(options);
  std::promise<Status> answer;
  const std::string content(32 * 1024, 'x');
  store.put("a", test::bytes_of(content), {}, [&](const Result<StoredObject>& put) { answer.set_value(put.status()); });
  const FileDescriptor connection(::accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(connection.is_open());
  const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
  ASSERT_EQ(::send(connection.number(), go_on.data(), go_on.size(), 0), static_cast<ssize_t>(go_on.size()));
  for (int waiting = 0; waiting < 1000; ++waiting) {  // until a part of the content is here, and the rest in the kernel
    std::this_thread::sleep_for(milliseconds(1));
    ASSERT_EQ(::ioctl(connection.number(), FIONREAD, &waiting), 0);
  }
  set_fence("foreign");
  const Status failed = answer.get_future().get();
  EXPECT_EQ(failed.code(), StatusCode::kWrongStore) << failed.message();
  std::vector<char> bytes(1 << 20);
  size_t received = 0;
  ssize_t count = 0;
  while ((count = ::recv(connection.number(), bytes.data(), bytes.size(), 0)) > 0)
    received += static_cast<size_t>(count);
  EXPECT_LT(received, content.size()) << "the rest was sent behind the end of the lease";
}

TEST_F(TierLeaseTest, AFileDoesNotGetItsNameOnceTheCopiesAreAnothers) {
  const auto store = open(lease(kShort));
  BlockingStore calls(*store);
  ASSERT_TRUE(calls.put("a", "old").is_ok());
  before_publishing_ = [&] {
    set_fence("foreign");
    std::this_thread::sleep_for(kShort);
  };
  for (const Status& status : {calls.put("a", "new").status(), calls.put("b", "new").status(), calls.remove("a")})
    EXPECT_EQ(status.code(), StatusCode::kWrongStore) << status.message();
  EXPECT_EQ(calls.remove_many({"a"}).status().code(), StatusCode::kWrongStore);
  EXPECT_EQ(calls.get("a").value(), "old");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "b"));
}

}  // namespace
}  // namespace fpfs
