// Copies that a service makes: what it is asked, and what it may answer.
#include <gtest/gtest.h>

#include "tests/engine/tier/s3_session.h"

namespace fpfs {
namespace {

using test::error_reply;
using test::FaultyServer;
using test::md5_text;
using test::ServerReply;
using test::ServerRequest;
using test::Session;

ServerReply head_reply(const std::string& tag, size_t size, const std::string& more = "x-amz-meta-mode: 1") {
  return {200, {"ETag: \"" + tag + "\"", more}, "", std::chrono::milliseconds(0), SIZE_MAX, size};
}
ServerReply copied(const std::string& tag, const std::string& more = "") {
  return {200, {}, fmt::format("<CopyObjectResult><ETag>\"{}\"</ETag>{}</CopyObjectResult>", tag, more)};
}

TEST(S3CopyingTest, ACopyIsOneRequestAndVerifiedByItsTag) {
  const std::string tag = md5_text("content");
  Session session(
      [&](const ServerRequest& request, int) { return request.method == "HEAD" ? head_reply(tag, 7) : copied(tag); });
  const StoredObject object = session->copy("a b/\xc3\xa4", "c").value();
  EXPECT_TRUE(object.verified);
  EXPECT_EQ(object.tag, tag);
  ServerRequest request = session.server().requests().at(1);
  EXPECT_EQ(request.method, "PUT");
  EXPECT_EQ(request.path, "/bucket/p/c");
  EXPECT_EQ(request.headers["x-amz-copy-source"], "/bucket/p/a%20b/%C3%A4");
  EXPECT_EQ(request.headers["x-amz-copy-source-if-match"], "\"" + tag + "\"");
  EXPECT_EQ(request.headers["x-amz-metadata-directive"], "COPY");
  EXPECT_NE(request.headers["authorization"].find("x-amz-copy-source;x-amz-copy-source-if-match;"), std::string::npos)
      << request.headers["authorization"];
  EXPECT_TRUE(session->copy("a", "c", tag, ObjectMetadata{{"owner", "2"}}).is_ok());
  request = session.server().requests().at(3);
  EXPECT_EQ(request.headers["x-amz-metadata-directive"], "REPLACE");
  EXPECT_EQ(request.headers["x-amz-meta-owner"], "2");
}

TEST(S3CopyingTest, AChecksumVerifiesWhatATagDoesNot) {
  const std::string more = "x-amz-checksum-crc32c: 4waSgw==";
  for (const std::string answered : {"4waSgw==", "", "AAAAAA=="}) {
    Session session([&](const ServerRequest& request, int) {
      if (request.method == "HEAD") return head_reply("one", 9, more);
      return copied("two", "<ChecksumCRC32C>" + answered + "</ChecksumCRC32C>");
    });
    EXPECT_EQ(session->copy("a", "b").value().verified, answered == "4waSgw==");
  }
}

TEST(S3CopyingTest, WhatIsNotThereOrNotThatVersion) {
  Session missing([](const ServerRequest&, int) { return ServerReply{404}; });
  EXPECT_EQ(missing->copy("a", "b").status().code(), StatusCode::kNotFound);
  Session other([](const ServerRequest&, int) { return head_reply("new", 7); });
  EXPECT_EQ(other->copy("a", "b", "old").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(other.server().count(), 1) << "nothing was copied";
  Session same([](const ServerRequest&, int) { return ServerReply(); });
  EXPECT_EQ(same->copy("a", "a").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(same->copy("a", "../b").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(same->copy("../a", "b").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(same->copy("a", "b", "", ObjectMetadata{{"Bad", ""}}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(same.server().count(), 0);
}

// The source is replaced between the look at it and the copy.
TEST(S3CopyingTest, ASourceThatIsReplacedMeanwhile) {
  const auto serve = [](bool knows_if_match) {
    return [=](const ServerRequest& request, int count) {
      const std::string tag = count == 1 ? "one" : "two";
      if (request.method == "HEAD") return head_reply(tag, 7);
      const bool matches = request.headers.at("x-amz-copy-source-if-match") == "\"two\"";
      return matches || !knows_if_match ? copied("two") : error_reply(412, "PreconditionFailed");
    };
  };
  for (const bool knows_if_match : {true, false}) {
    Session any(serve(knows_if_match));
    EXPECT_EQ(any->copy("a", "b").value().tag, "two") << "whatever version is there";
    Session one(serve(knows_if_match));
    EXPECT_EQ(one->copy("a", "b", "one").status().code(), StatusCode::kNotFound);
  }
  std::atomic<int> version = 0;
  Session busy([&](const ServerRequest& request, int) {
    return request.method == "HEAD" ? head_reply(std::to_string(++version), 7) : error_reply(412, "PreconditionFailed");
  });
  EXPECT_EQ(busy->copy("a", "b").status().code(), StatusCode::kNotFound) << "not for ever";
}

TEST(S3CopyingTest, AnErrorInsideOfASuccessIsAnError) {
  Session refused([](const ServerRequest& request, int) {
    return request.method == "HEAD" ? head_reply("one", 7) : error_reply(200, "AccessDenied");
  });
  EXPECT_EQ(refused->copy("a", "b").status().code(), StatusCode::kRefused);
  Session later([](const ServerRequest& request, int count) {
    if (request.method == "HEAD") return head_reply("one", 7);
    return count == 2 ? error_reply(200, "InternalError") : copied("one");
  });
  EXPECT_EQ(later->copy("a", "b").value().tag, "one");
  EXPECT_EQ(later.server().count(), 3);
  Session silent([](const ServerRequest& request, int) {
    return request.method == "HEAD" ? head_reply("one", 7) : ServerReply{200, {}, "<CopyObjectResult/>"};
  });
  EXPECT_EQ(silent->copy("a", "b").status().code(), StatusCode::kCorruption);
}

// --- in parts -------------------------------------------------------------------------------------------------------

class PartsTest : public ::testing::Test {
 protected:
  PartsTest() : server_([this](const ServerRequest& request, int) { return serve(request); }) {
    S3Options options = Session::options(server_.endpoint(), 20);
    options.copy_bytes_max = 100;
    options.copy_part_bytes = 30;
    store_ = std::make_unique<S3Store>(options);
  }
  Result<StoredObject> copy(const std::optional<ObjectMetadata>& metadata = {}) {
    return test::BlockingStore(*store_).copy("a", "b", "", metadata);
  }
  ServerReply serve(const ServerRequest& request) {
    if (request.method == "HEAD") return head_reply("one", 200);
    if (request.method == "DELETE") return ServerReply{204};
    if (request.query == "uploads=")
      return {200, {}, "<InitiateMultipartUploadResult><UploadId>id</UploadId></InitiateMultipartUploadResult>"};
    if (request.method == "POST")
      return {200, {}, "<CompleteMultipartUploadResult><ETag>two</ETag></CompleteMultipartUploadResult>"};
    if (request.query.starts_with(failing_)) return failure_;
    return {200, {}, "<CopyPartResult><ETag>\"" + md5_text(request.query) + "\"</ETag></CopyPartResult>"};
  }
  std::vector<ServerRequest> of_method(const std::string& method) {
    std::vector<ServerRequest> found;
    for (ServerRequest& request : server_.requests())
      if (request.method == method) found.push_back(request);
    return found;
  }

  std::string failing_ = "none";
  ServerReply failure_;
  FaultyServer server_;
  std::unique_ptr<S3Store> store_;
};

TEST_F(PartsTest, EachByteOnceAndInOrder) {
  const Result<StoredObject> object = copy();
  ASSERT_TRUE(object.is_ok()) << object.status().message();
  EXPECT_EQ(object->tag, "two");
  EXPECT_FALSE(object->verified) << "the service read it, and nobody compared that";
  std::map<std::string, std::string> ranges;
  for (ServerRequest& part : of_method("PUT")) ranges[part.query] = part.headers["x-amz-copy-source-range"];
  ASSERT_EQ(ranges.size(), 7u);
  EXPECT_EQ(ranges["partNumber=1&uploadId=id"], "bytes=0-29");
  EXPECT_EQ(ranges["partNumber=7&uploadId=id"], "bytes=180-199");
  auto posts = of_method("POST");
  EXPECT_EQ(posts[0].headers["x-amz-meta-mode"], "1") << "a copy in parts has no metadata of its own";
  const std::string& finish = posts[1].content;
  EXPECT_LT(finish.find("<PartNumber>6<"), finish.find("<PartNumber>7<"));
  ASSERT_TRUE(copy(ObjectMetadata{{"owner", "2"}}).is_ok());
  posts = of_method("POST");
  EXPECT_EQ(posts[2].headers.count("x-amz-meta-mode"), 0u);
  EXPECT_EQ(posts[2].headers["x-amz-meta-owner"], "2");
}

TEST_F(PartsTest, AFailureLeavesNoUpload) {
  failing_ = "partNumber=3&";
  failure_ = error_reply(403, "AccessDenied");
  EXPECT_EQ(copy().status().code(), StatusCode::kPermission);
  ASSERT_EQ(of_method("DELETE").size(), 1u);
  EXPECT_EQ(of_method("DELETE")[0].query, "uploadId=id");
  EXPECT_EQ(of_method("POST").size(), 1u) << "it was not finished";
  failure_ = error_reply(412, "PreconditionFailed");
  EXPECT_EQ(copy().status().code(), StatusCode::kNotFound) << "replaced again and again";
  EXPECT_EQ(of_method("DELETE").size(), 4u);
}

TEST_F(PartsTest, ClosingInTheMiddleAnswers) {
  failing_ = "partNumber=2&";
  failure_ = {200, {}, "", std::chrono::milliseconds(60'000)};
  std::promise<Status> answer;
  store_->copy("a", "", "b", std::nullopt,
               [&](const Result<StoredObject>& copied) { answer.set_value(copied.status()); });
  while (of_method("PUT").size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  store_->close();
  EXPECT_EQ(answer.get_future().get().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace fpfs
