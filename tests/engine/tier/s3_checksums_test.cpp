// S3Store and services that know checksums, do not know them, refuse them, or answer others.
#include <gtest/gtest.h>

#include "engine/tier/s3_checksum.h"
#include "tests/engine/tier/s3_session.h"

namespace fpfs {
namespace {

using test::error_reply;
using test::md5_text;
using test::ServerReply;
using test::ServerRequest;
using test::Session;
using test::stored;

std::string checksum_text(std::string_view content) {
  return s3_checksum(test::bytes_of(content));
}

bool has(const ServerRequest& request, const std::string& name) {
  return request.headers.count(name) != 0;
}

// As AWS with KMS: the tag says nothing, the checksum does.
ServerReply checked(const ServerRequest& request) {
  return {200,
          {"ETag: \"0f\"", "x-amz-server-side-encryption: aws:kms",
           "x-amz-checksum-crc32c: " + checksum_text(request.content)}};
}

TEST(S3ChecksumsTest, AServiceThatAnswersThemNeedsNoMd5) {
  Session session([](const ServerRequest& request, int) { return checked(request); });
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(session->put("key", "content").value().verified);
  auto requests = session.server().requests();
  ASSERT_EQ(requests.size(), 3u);
  for (ServerRequest& request : requests) EXPECT_EQ(request.headers["x-amz-checksum-crc32c"], checksum_text("content"));
  EXPECT_TRUE(has(requests[0], "content-md5")) << "it is not known yet";
  EXPECT_FALSE(has(requests[1], "content-md5"));
}

TEST(S3ChecksumsTest, AWrongChecksumInTheAnswerIsTriedAgainAndThenCorrupted) {
  const ServerReply wrong = {200, {"ETag: \"" + md5_text("content") + "\"", "x-amz-checksum-crc32c: AAAAAA=="}};
  Session passes([&](const ServerRequest& request, int count) { return count <= 2 ? wrong : checked(request); });
  EXPECT_TRUE(passes->put("key", "content").value().verified);
  EXPECT_EQ(passes.server().count(), 3);
  Session stays([&](const ServerRequest&, int) { return wrong; });
  const Status status = stays->put("key", "content").status();
  EXPECT_EQ(status.code(), StatusCode::kCorruption) << status.message();
  EXPECT_NE(status.message().find("their CRC32C is AAAAAA=="), std::string::npos) << status.message();
  EXPECT_EQ(stays.server().count(), static_cast<int>(S3Store::kCorruptionAttemptsMax));
}

TEST(S3ChecksumsTest, AServiceThatIgnoresThemGetsMd5Alone) {
  Session session([](const ServerRequest& request, int) { return stored(request); });
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(session->put("key", "content").value().verified) << "by its tag";
  auto requests = session.server().requests();
  EXPECT_TRUE(has(requests[0], "x-amz-checksum-crc32c"));
  EXPECT_FALSE(has(requests[1], "x-amz-checksum-crc32c"));
  EXPECT_TRUE(has(requests[1], "content-md5"));
}

TEST(S3ChecksumsTest, AServiceThatRefusesThemIsAskedOnceWithout) {
  for (const ServerReply& refusal : {error_reply(400, "InvalidRequest"), error_reply(501, "NotImplemented")}) {
    Session session([&](const ServerRequest& request, int) {
      for (const auto& [name, value] : request.headers)
        if (name.starts_with("x-amz-checksum")) return refusal;
      if (request.query == "uploads=")
        return ServerReply{
            200, {}, "<InitiateMultipartUploadResult><UploadId>id</UploadId></InitiateMultipartUploadResult>"};
      return stored(request);
    });
    EXPECT_TRUE(session->put("key", "content").value().verified);
    EXPECT_EQ(session.server().count(), 2);
    EXPECT_TRUE(session->put("key", "content").value().verified);
    EXPECT_EQ(session->begin("key").value().id, "id");
    EXPECT_EQ(session.server().count(), 4) << "it is known by now";
    // Asked first for an upload.
    Session upload([&](const ServerRequest& request, int count) {
      if (has(request, "x-amz-checksum-algorithm")) return refusal;
      return count > 2 ? stored(request)
                       : ServerReply{200,
                                     {},
                                     "<InitiateMultipartUploadResult><UploadId>id</UploadId></"
                                     "InitiateMultipartUploadResult>"};
    });
    EXPECT_EQ(upload->begin("key").value().id, "id");
    EXPECT_TRUE(upload->put("key", "content").is_ok());
    EXPECT_EQ(upload.server().count(), 3);
  }
}

TEST(S3ChecksumsTest, WhatIsRefusedForAnotherReasonStaysRefused) {
  Session session([](const ServerRequest&, int) { return error_reply(400, "InvalidRequest"); });
  EXPECT_EQ(session->put("key", "content").status().code(), StatusCode::kRefused);
  EXPECT_EQ(session.server().count(), 2);
}

TEST(S3ChecksumsTest, AServiceThatStopsAnsweringThemIsSentMd5Again) {
  Session session(
      [](const ServerRequest& request, int count) { return count == 1 ? checked(request) : stored(request); });
  EXPECT_TRUE(session->put("key", "content").value().verified);
  EXPECT_FALSE(session->put("key", "content").value().verified) << "nothing was compared";
  EXPECT_TRUE(session->put("key", "content").value().verified);
  EXPECT_TRUE(has(session.server().requests()[2], "content-md5"));
}

// --- uploads in parts -----------------------------------------------------------------------------------------------

// A service that knows checksums, with tags that are no MD5.
class Service {
 public:
  ServerReply operator()(const ServerRequest& request, int /*count*/) {
    if (request.query == "uploads=")
      return {200,
              {"x-amz-checksum-algorithm: CRC32C"},
              "<InitiateMultipartUploadResult><UploadId>id</UploadId></InitiateMultipartUploadResult>"};
    if (request.method == "PUT") {
      const std::lock_guard lock(mutex_);
      parts_.push_back(checksum_text(request.content));
      return {200, {fmt::format("ETag: \"{}\"", parts_.size()), "x-amz-checksum-crc32c: " + parts_.back()}};
    }
    if (request.method == "GET") return {200, {}, list()};
    if (request.method == "HEAD") return {200, {"ETag: \"whole\"", "x-amz-checksum-crc32c: " + composite_}};
    if (lose_answer_ && ++finishes_ == 1) return {200, {}, "", std::chrono::milliseconds(0), 0};
    if (lose_answer_) return error_reply(404, "NoSuchUpload");
    return {200,
            {},
            fmt::format("<CompleteMultipartUploadResult><ETag>whole</ETag><ChecksumCRC32C>{}</ChecksumCRC32C></"
                        "CompleteMultipartUploadResult>",
                        composite_)};
  }
  std::string list() {
    const std::lock_guard lock(mutex_);
    std::string text = "<ListPartsResult>";
    for (size_t i = 0; i < parts_.size(); ++i)
      text += fmt::format(
          "<Part><PartNumber>{}</PartNumber><Size>3</Size><ETag>{}</ETag><ChecksumCRC32C>{}</"
          "ChecksumCRC32C></Part>",
          i + 1, i + 1, parts_[i]);
    return text + "</ListPartsResult>";
  }

  std::mutex mutex_;
  std::vector<std::string> parts_;
  std::string composite_ = *s3_checksum_of_parts({checksum_text("one"), checksum_text("two")});
  bool lose_answer_ = false;
  std::atomic<int> finishes_ = 0;
};

struct Upload12 {
  Upload upload;
  std::vector<StoredPart> parts;
};
Upload12 upload(Session& session) {
  Upload12 made{session->begin("key").value(), {}};
  made.parts.push_back(session->put_part(made.upload, 1, 0, "one").value());
  made.parts.push_back(session->put_part(made.upload, 2, 3, "two").value());
  return made;
}

TEST(S3ChecksumsTest, AnUploadIsVerifiedByTheChecksumOfItsParts) {
  Service service;
  Session session(std::ref(service));
  const Upload12 made = upload(session);
  EXPECT_EQ(made.upload.id, "crc32c:id") << "whoever goes on must know";
  EXPECT_EQ(made.parts[0].checksum, checksum_text("one"));
  const StoredObject object = session->finish(made.upload, made.parts).value();
  EXPECT_TRUE(object.verified);
  EXPECT_EQ(object.tag, "whole");
  auto requests = session.server().requests();
  EXPECT_EQ(requests[1].query, "partNumber=1&uploadId=id");
  EXPECT_FALSE(has(requests[1], "content-md5"));
  EXPECT_NE(requests[3].content.find("<ChecksumCRC32C>" + checksum_text("two") + "</ChecksumCRC32C>"),
            std::string::npos)
      << requests[3].content;
}

TEST(S3ChecksumsTest, PartsThatWereWrittenDownWithoutChecksumsAreAskedFor) {
  Service service;
  Session session(std::ref(service));
  Upload12 made = upload(session);
  for (StoredPart& part : made.parts) part.checksum.clear();
  EXPECT_TRUE(session->finish(made.upload, made.parts).value().verified);
  auto requests = session.server().requests();
  EXPECT_EQ(requests[3].method, "GET");
  EXPECT_NE(requests[4].content.find("<ChecksumCRC32C>" + checksum_text("one")), std::string::npos);
}

// SeaweedFS 4.48 wants checksums at the end, and does not list them.
TEST(S3ChecksumsTest, PartsWhoseChecksumsTheServiceDoesNotListAreWrittenAgain) {
  Service service;
  Session session([&](const ServerRequest& request, int count) {
    if (request.method == "GET")
      return ServerReply{
          200, {}, "<ListPartsResult><Part><PartNumber>1</PartNumber><ETag>1</ETag></Part></ListPartsResult>"};
    return service(request, count);
  });
  Upload12 made = upload(session);
  EXPECT_TRUE(session->parts(made.upload).value().empty());
  made.parts[1].checksum.clear();
  const Status status = session->finish(made.upload, made.parts).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("part 2"), std::string::npos) << status.message();
  made.parts[1] = session->put_part(made.upload, 2, 3, "two").value();
  EXPECT_TRUE(session->finish(made.upload, made.parts).is_ok());
}

TEST(S3ChecksumsTest, OtherBytesInAnUploadAreCorruption) {
  Service service;
  service.composite_ = *s3_checksum_of_parts({checksum_text("two"), checksum_text("one")});
  Session session(std::ref(service));
  const Upload12 made = upload(session);
  const Status status = session->finish(made.upload, made.parts).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruption) << status.message();
}

TEST(S3ChecksumsTest, AChecksumOfAnotherFormVerifiesNothing) {
  Service service;
  service.composite_ = checksum_text("onetwo");  // of the whole object
  Session session(std::ref(service));
  const Upload12 made = upload(session);
  EXPECT_FALSE(session->finish(made.upload, made.parts).value().verified);
}

TEST(S3ChecksumsTest, APartWhoseChecksumIsAnsweredWronglyIsSentAgain) {
  Service service;
  Session session([&](const ServerRequest& request, int count) {
    if (count == 2) return ServerReply{200, {"ETag: \"1\"", "x-amz-checksum-crc32c: AAAAAA=="}};
    return service(request, count);
  });
  const Upload begun = session->begin("key").value();
  EXPECT_EQ(session->put_part(begun, 1, 0, "one").value().checksum, checksum_text("one"));
  EXPECT_EQ(session.server().count(), 3);
}

TEST(S3ChecksumsTest, AFinishWhoseAnswerWasLostIsRecognisedByItsChecksum) {
  for (const bool ours : {true, false}) {
    Service service;
    service.lose_answer_ = true;
    if (!ours) service.composite_ = "AAAAAA==-2";
    Session session(std::ref(service));
    const Upload12 made = upload(session);
    const Result<StoredObject> object = session->finish(made.upload, made.parts);
    EXPECT_EQ(object.is_ok(), ours);
    EXPECT_EQ(object.status().code(), ours ? StatusCode::kOk : StatusCode::kNotFound);
    EXPECT_TRUE(!ours || object->verified);
    EXPECT_EQ(session.server().requests().back().headers["x-amz-checksum-mode"], "ENABLED");
  }
}

TEST(S3ChecksumsTest, UploadsThatAreFoundSayWhetherTheyHaveThem) {
  Session session([](const ServerRequest&, int) {
    return ServerReply{
        200,
        {},
        "<ListMultipartUploadsResult><Upload><Key>p/a</Key><UploadId>1</UploadId><ChecksumAlgorithm>"
        "CRC32C</ChecksumAlgorithm></Upload><Upload><Key>p/b</Key><UploadId>2</UploadId></Upload>"
        "<Upload><Key>p/c</Key><UploadId>3</UploadId><ChecksumAlgorithm>SHA1</ChecksumAlgorithm></Upload>"
        "</ListMultipartUploadsResult>"};
  });
  const auto uploads = session->uploads().value();
  ASSERT_EQ(uploads.size(), 3u);
  EXPECT_EQ(uploads[0].id, "crc32c:1");
  EXPECT_EQ(uploads[1].id, "2");
  EXPECT_EQ(uploads[2].id, "3");
}

}  // namespace
}  // namespace fpfs
