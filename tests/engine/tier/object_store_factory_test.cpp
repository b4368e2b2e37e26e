#include "engine/tier/object_store_factory.h"

#include <sys/stat.h>

#include <fstream>

#include <gtest/gtest.h>

#include "engine/io/posix_storage.h"
#include "tests/engine/tier/blocking_store.h"
#include "tests/engine/tier/faulty_server.h"
#include "tests/support/temporary_directory.h"

namespace fpfs {
namespace {

class ObjectStoreFactoryTest : public ::testing::Test {
 protected:
  Status failure(const std::string& url, const ObjectStoreOptions& options = {}) {
    const auto made = make_object_store(storage_, url, options);
    EXPECT_FALSE(made.is_ok()) << url;
    return made.status();
  }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name) << text;
    return directory_ / name;
  }

  test::TemporaryDirectory directory_{test::quick_place()};
  PosixStorage storage_;
};

TEST_F(ObjectStoreFactoryTest, ADirectory) {
  const auto store = make_object_store(storage_, "file://" + directory_.path() + "?connections=2").value();
  test::BlockingStore calls(*store);
  EXPECT_TRUE(calls.check().is_ok());
  EXPECT_TRUE(calls.put("a/b", "content").is_ok());
  EXPECT_EQ(calls.get("a/b").value(), "content");
  EXPECT_EQ(store->describe(), "file://" + directory_.path());
}

TEST_F(ObjectStoreFactoryTest, ADirectoryThatIsClosedWithCallsInProgress) {
  for (int i = 0; i < 20; ++i) {
    auto store = make_object_store(storage_, "file://" + directory_.path() + "?connections=1").value();
    std::atomic<int> answered = 0;
    for (int j = 0; j < 20; ++j)
      store->put("a", test::bytes_of("content"), {}, [&](const Result<StoredObject>&) { ++answered; });
    store.reset();
    EXPECT_EQ(answered, 20);
  }
}

TEST_F(ObjectStoreFactoryTest, ABucketWithAProfileOfAFile) {
  test::FaultyServer server([](const test::ServerRequest&, int) {
    return test::ServerReply{200, {}, "<ListBucketResult/>"};
  });
  const std::string file = write("credentials", "[lab]\naws_access_key_id=AKID\naws_secret_access_key=hunter2\n");
  const auto store =
      make_object_store(storage_, fmt::format("s3://bucket/p?endpoint={}&credentials={}&profile=lab&deadline=5",
                                              server.endpoint(), file))
          .value();
  EXPECT_TRUE(test::BlockingStore(*store).check().is_ok());
  EXPECT_NE(server.requests().at(0).headers["authorization"].find("AKID"), std::string::npos);
  EXPECT_EQ(store->describe(), "s3://bucket/p/ at " + server.endpoint());
}

TEST_F(ObjectStoreFactoryTest, OneClearLineForWhatIsWrongHere) {
  const Status missing = failure("file://" + (directory_ / "missing"));
  EXPECT_EQ(missing.code(), StatusCode::kWrongStore);
  EXPECT_NE(missing.message().find("is it mounted?"), std::string::npos) << missing.message();
  EXPECT_EQ(failure("ftp://host/x").code(), StatusCode::kInvalidArgument);
  const Status certificates = failure("s3://bucket?ca=" + (directory_ / "ca.pem"));
  EXPECT_EQ(certificates.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(certificates.message().find("ca.pem: No such file"), std::string::npos) << certificates.message();
  EXPECT_EQ(failure("s3://bucket?ca=" + directory_.path()).code(), StatusCode::kInvalidArgument);
  const Status file = failure("s3://bucket?credentials=" + (directory_ / "missing"));
  EXPECT_EQ(file.code(), StatusCode::kPermission);
  EXPECT_NE(file.message().find("No such file"), std::string::npos) << file.message();
  const std::string path = write("credentials", "[lab]\naws_access_key_id=AKID\naws_secret_access_key=hunter2\n");
  const Status profile = failure("s3://bucket?profile=other&credentials=" + path);
  EXPECT_EQ(profile.code(), StatusCode::kPermission);
  EXPECT_NE(profile.message().find("no profile 'other'"), std::string::npos) << profile.message();
  for (const Status& status : {missing, certificates, file, profile}) {
    EXPECT_TRUE(status.message().starts_with("tier: ")) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
    EXPECT_EQ(status.message().find("hunter2"), std::string::npos);
  }
}

TEST_F(ObjectStoreFactoryTest, CredentialsInTheUrlAreRefused) {
  for (const std::string url : {"s3://AKID:hunter2@bucket/p", "s3://bucket?aws_secret_access_key=hunter2",
                                "s3://bucket?endpoint=http://AKID:hunter2@host", "file://user:hunter2@host/mnt"}) {
    const Status status = failure(url);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message().find("hunter2"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("credentials file"), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace fpfs
