// S3Store against a server that answers wrongly, slowly or not at all.
#include "engine/tier/s3_store.h"

#include <gtest/gtest.h>

#include "tests/engine/tier/s3_session.h"

namespace fpfs {
namespace {

using std::chrono::milliseconds;
using test::error_reply;
using test::FaultyServer;
using test::md5_text;
using test::ServerReply;
using test::ServerRequest;
using test::Session;
using test::stored;

// --- what is sent ---------------------------------------------------------------------------------------------------

TEST(S3StoreTest, APutIsSignedAndChecked) {
  Session session([](const ServerRequest& request, int) { return stored(request); });
  const StoredObject object = session->put("a b/\xc3\xa4+%", "content", {{"mode", "06 44\n"}, {"empty", ""}}).value();
  EXPECT_TRUE(object.verified);
  EXPECT_EQ(object.tag, md5_text("content"));
  ServerRequest request = session.server().requests().at(0);
  EXPECT_EQ(request.method, "PUT");
  EXPECT_EQ(request.path, "/bucket/p/a%20b/%C3%A4%2B%25");
  EXPECT_EQ(request.content, "content");
  EXPECT_EQ(request.headers["content-md5"], base64(*md5_of(test::bytes_of("content"))));
  EXPECT_EQ(request.headers["x-amz-content-sha256"], "UNSIGNED-PAYLOAD");
  EXPECT_EQ(request.headers["x-amz-meta-mode"], "06%2044%0A");
  EXPECT_EQ(request.headers.count("x-amz-meta-empty"), 1u);
  EXPECT_NE(request.headers["authorization"].find("/r-1/s3/aws4_request"), std::string::npos);
  EXPECT_EQ(request.headers["authorization"].find("hunter2"), std::string::npos);
}

TEST(S3StoreTest, QueriesAreSortedAndEncoded) {
  Session session([](const ServerRequest&, int) { return ServerReply{200, {}, "<ListBucketResult/>"}; });
  ListRequest request;
  request.prefix = "x/ &";
  request.one_level = true;
  request.position = "token=/+";
  EXPECT_TRUE(session->page(request).is_ok());
  EXPECT_EQ(session.server().requests().at(0).query,
            "continuation-token=token%3D%2F%2B&delimiter=%2F&encoding-type=url&list-type=2&max-keys=1000&prefix=p%2Fx%"
            "2F%20%26");
}

TEST(S3StoreTest, ATokenOfASessionIsSent) {
  FaultyServer server([](const ServerRequest& request, int) { return stored(request); });
  S3Options options = Session::options(server.endpoint(), 5);
  options.credentials.session_token = "SESSION";
  S3Store store(options);
  EXPECT_TRUE(test::BlockingStore(store).put("a", "x").is_ok());
  EXPECT_EQ(server.requests().at(0).headers["x-amz-security-token"], "SESSION");
}

TEST(S3StoreTest, BadKeysAreNotSent) {
  Session session([](const ServerRequest& request, int) { return stored(request); });
  for (const std::string key : {"../x", "/x", "", "a/", "\xff"})
    EXPECT_EQ(session->put(key, "x").status().code(), StatusCode::kInvalidArgument) << key;
  EXPECT_EQ(session->put("a", "x", {{"Mode", "x"}}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(session->get("a", 0, 4, "t\r\nx-amz-acl: public-read").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(session.server().count(), 0);
}

// --- errors that say what to do -------------------------------------------------------------------------------------

struct ErrorCase {
  const char* name;
  ServerReply reply;
  StatusCode code;
  const char* words;
};

TEST(S3StoreTest, ErrorsOfTheServiceHaveCodesAndOneLine) {
  const std::vector<ErrorCase> cases = {
      {"not there", error_reply(404, "NoSuchKey"), StatusCode::kNotFound, "NoSuchKey"},
      {"wrong bucket", error_reply(404, "NoSuchBucket"), StatusCode::kWrongStore, "NoSuchBucket: as planned"},
      {"no rights", error_reply(403, "AccessDenied"), StatusCode::kPermission, "AccessDenied"},
      {"wrong secret", error_reply(403, "SignatureDoesNotMatch"), StatusCode::kPermission, "SignatureDoesNotMatch"},
      {"unknown key", error_reply(403, "InvalidAccessKeyId"), StatusCode::kPermission, "InvalidAccessKeyId"},
      {"clock", error_reply(403, "RequestTimeTooSkewed"), StatusCode::kClockSkew, "this machine's clock"},
      {"clock, by its date", {403, {"Date: Tue, 24 Nov 2015 23:36:13 GMT"}, ""}, StatusCode::kClockSkew, "ahead of"},
      {"other region", error_reply(301, "PermanentRedirect", "<Endpoint>x</Endpoint>"), StatusCode::kWrongStore,
       "PermanentRedirect"},
      {"other region, named", error_reply(400, "AuthorizationHeaderMalformed", "<Region>eu-9</Region>"),
       StatusCode::kWrongStore, "say region=eu-9"},
      {"redirect", {301, {"x-amz-bucket-region: eu-7"}, ""}, StatusCode::kWrongStore, "say region=eu-7"},
      {"redirect elsewhere", {307, {"Location: http://127.0.0.1:1/"}, ""}, StatusCode::kWrongStore, "HTTP 307"},
      {"too large", error_reply(400, "EntityTooLarge"), StatusCode::kTooLarge, "EntityTooLarge"},
      {"quota", error_reply(403, "QuotaExceeded"), StatusCode::kNoSpace, "QuotaExceeded"},
      {"disk full", {507, {}, ""}, StatusCode::kNoSpace, "HTTP 507"},
      {"another", error_reply(400, "SomethingNew"), StatusCode::kRefused, "SomethingNew: as planned"},
      {"not S3", {404, {}, "<html><body>not found</body></html>"}, StatusCode::kNotFound, "HTTP 404"},
      {"lines", error_reply(400, "Odd&#10;Code"), StatusCode::kRefused, "Odd?Code"},
  };
  for (const ErrorCase& one : cases) {
    Session session([&](const ServerRequest&, int) { return one.reply; });
    const Status status = session->put("key", "content").status();
    EXPECT_EQ(status.code(), one.code) << one.name << ": " << status.message();
    EXPECT_NE(status.message().find(one.words), std::string::npos) << one.name << ": " << status.message();
    EXPECT_NE(status.message().find("s3://bucket/p/key at http://127.0.0.1"), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find("hunter2"), std::string::npos);
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
    // What is refused for a reason that nobody here knows may be refused for its checksums.
    EXPECT_EQ(session.server().count(), one.code == StatusCode::kRefused ? 2 : 1)
        << one.name << ": asking again would not help";
  }
}

TEST(S3StoreTest, AWebServerIsNotAStore) {
  Session session([](const ServerRequest&, int) {
    return ServerReply{200, {"Content-Type: text/html"}, "<html><body>hello</body></html>"};
  });
  const Status status = session->check();
  EXPECT_EQ(status.code(), StatusCode::kWrongStore) << status.message();
  EXPECT_NE(status.message().find("what answers is not S3"), std::string::npos) << status.message();
}

TEST(S3StoreTest, NobodyListens) {
  std::string endpoint;
  {
    endpoint = FaultyServer([](const ServerRequest&, int) { return ServerReply(); }).endpoint();
  }
  S3Store store(Session::options(endpoint, 1));
  const Status status = test::BlockingStore(store).check();
  EXPECT_EQ(status.code(), StatusCode::kUnreachable) << status.message();
}

TEST(S3StoreTest, NoCredentials) {
  S3Options options = Session::options("http://127.0.0.1:1", 5);
  options.credentials = CredentialOptions();
  options.credentials.instance_disabled = true;
  S3Store store(options);
  const Status status = test::BlockingStore(store).check();
  EXPECT_EQ(status.code(), StatusCode::kPermission);
  EXPECT_NE(status.message().find("no credentials: AWS_ACCESS_KEY_ID"), std::string::npos) << status.message();
}

// --- what passes ----------------------------------------------------------------------------------------------------

TEST(S3StoreTest, WhatFailsForTheMomentIsTriedAgain) {
  const std::vector<std::pair<const char*, ServerReply>> cases = {
      {"503", error_reply(503, "SlowDown")},
      {"500", error_reply(500, "InternalError")},
      {"502 of a proxy", {502, {}, "<html></html>"}},
      {"429", {429, {}, ""}},
      {"time-out", error_reply(400, "RequestTimeout")},
      {"bytes damaged on the way", error_reply(400, "BadDigest")},
      {"no answer", {200, {}, "", milliseconds(0), 0}},
      {"half a head", {200, {"ETag: \"x\""}, "", milliseconds(0), 20}},
      {"wrong bytes stored", {200, {"ETag: \"d41d8cd98f00b204e9800998ecf8427e\""}, ""}},
      {"nothing for a while", {200, {}, "", milliseconds(3000)}},
  };
  for (const auto& [name, reply] : cases) {
    Session session(
        [&, bad = reply](const ServerRequest& request, int count) { return count <= 2 ? bad : stored(request); });
    const Result<StoredObject> put = session->put("key", "content");
    ASSERT_TRUE(put.is_ok()) << name << ": " << put.status().message();
    EXPECT_TRUE(put->verified) << name;
    EXPECT_EQ(session.server().count(), 3) << name;
    EXPECT_EQ(session.server().requests().back().content, "content") << name << ": from its beginning again";
  }
}

TEST(S3StoreTest, TheDeadlineEndsIt) {
  Session session([](const ServerRequest&, int) { return error_reply(503, "SlowDown"); }, 1);
  const Status status = session->put("key", "content").status();
  EXPECT_EQ(status.code(), StatusCode::kUnreachable);
  EXPECT_GT(session.server().count(), 5);
}

TEST(S3StoreTest, RetryAfterIsKept) {
  Session session([](const ServerRequest& request, int count) {
    ServerReply busy = error_reply(503, "SlowDown");
    busy.headers.push_back("Retry-After: 1");
    return count == 1 ? busy : stored(request);
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(session->put("key", "content").is_ok());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(1000));
}

TEST(S3StoreTest, ALongerRetryAfterThanTheDeadlineFailsAtOnce) {
  Session session([](const ServerRequest&, int) {
    ServerReply busy = error_reply(503, "SlowDown");
    busy.headers.push_back("Retry-After: 3600");
    return busy;
  });
  EXPECT_EQ(session->put("key", "content").status().code(), StatusCode::kUnreachable);
  EXPECT_EQ(session.server().count(), 1);
}

TEST(S3StoreTest, AServiceThatAlwaysStoresOtherBytesIsCorrupted) {
  Session session([](const ServerRequest&, int) {
    return ServerReply{200, {"ETag: \"d41d8cd98f00b204e9800998ecf8427e\""}, ""};
  });
  const Status status = session->put("key", "content").status();
  EXPECT_EQ(status.code(), StatusCode::kCorruption) << status.message();
  EXPECT_EQ(session.server().count(), static_cast<int>(S3Store::kCorruptionAttemptsMax));
}

TEST(S3StoreTest, ATagThatIsNoMd5VerifiesNothing) {
  for (const ServerReply& reply :
       {ServerReply{200, {"ETag: \"abc-def\""}, ""},
        ServerReply{200, {"ETag: \"d41d8cd98f00b204e9800998ecf8427e\"", "x-amz-server-side-encryption: aws:kms"}, ""},
        ServerReply{200, {}, ""}}) {
    Session session([&](const ServerRequest&, int) { return reply; });
    const Result<StoredObject> put = session->put("key", "content");
    ASSERT_TRUE(put.is_ok()) << put.status().message();
    EXPECT_FALSE(put->verified);
  }
}

// --- reading --------------------------------------------------------------------------------------------------------

ServerReply range_reply(const std::string& content, size_t first, size_t last, size_t size) {
  return {206, {"ETag: \"t\"", fmt::format("Content-Range: bytes {}-{}/{}", first, last, size)}, content};
}

TEST(S3StoreTest, ARangeIsAskedForAndChecked) {
  Session session([](const ServerRequest&, int) { return range_reply("3456", 3, 6, 10); });
  EXPECT_EQ(session->get("key", 3, 4, "t").value(), "3456");
  ServerRequest request = session.server().requests().at(0);
  EXPECT_EQ(request.headers["range"], "bytes=3-6");
  EXPECT_EQ(request.headers["if-match"], "\"t\"");
}

TEST(S3StoreTest, AnotherVersionIsNotFound) {
  Session refused([](const ServerRequest&, int) { return error_reply(412, "PreconditionFailed"); });
  EXPECT_EQ(refused->get("key", 0, 4, "t").status().code(), StatusCode::kNotFound);
  Session ignored([](const ServerRequest&, int) { return range_reply("3456", 3, 6, 10); });
  EXPECT_EQ(ignored->get("key", 3, 4, "other").status().code(), StatusCode::kNotFound);
}

TEST(S3StoreTest, WrongRangesAreTriedAgainAndThenCorrupted) {
  for (const ServerReply& reply :
       {range_reply("2345", 2, 5, 10), range_reply("345", 3, 5, 10), range_reply("3456", 3, 5, 10),
        ServerReply{206, {"Content-Range: bytes x"}, "3456"}, ServerReply{206, {}, "3456"}}) {
    Session session([&](const ServerRequest&, int) { return reply; });
    EXPECT_EQ(session->get("key", 3, 4).status().code(), StatusCode::kCorruption);
    EXPECT_EQ(session.server().count(), 3);
  }
}

TEST(S3StoreTest, MoreThanWasAskedForIsNotWritten) {
  Session session([](const ServerRequest&, int) { return range_reply("3456789", 3, 9, 10); });
  EXPECT_EQ(session->get("key", 3, 4).status().code(), StatusCode::kWrongStore);
  Session whole([](const ServerRequest&, int) { return ServerReply{200, {}, "0123"}; });
  EXPECT_EQ(whole->get("key", 3, 4).status().code(), StatusCode::kWrongStore);
}

TEST(S3StoreTest, AConnectionThatBreaksInTheMiddleIsTriedAgain) {
  const std::string content(200'000, 'c');
  Session session([&](const ServerRequest&, int count) {
    ServerReply reply = range_reply(content, 0, content.size() - 1, content.size());
    if (count <= 2) reply.cut_after = 100'000;
    return reply;
  });
  EXPECT_EQ(session->get("key", 0, content.size()).value(), content);
  EXPECT_EQ(session.server().count(), 3);
}

TEST(S3StoreTest, BehindTheEndIsNothing) {
  Session session([](const ServerRequest& request, int) {
    if (request.method == "HEAD") return ServerReply{200, {"ETag: \"t\""}, "", milliseconds(0), SIZE_MAX, 10};
    return error_reply(416, "InvalidRange");
  });
  EXPECT_EQ(session->get("key", 10, 4).value(), "");
}

TEST(S3StoreTest, HeadTellsSizeTagAndMetadata) {
  Session session([](const ServerRequest&, int) {
    return ServerReply{
        200,
        {"ETag: \"t\"", "Last-Modified: Tue, 24 Nov 2026 23:36:13 GMT", "x-amz-meta-a: 1%202", "X-Amz-Meta-B: 100%"},
        "",
        milliseconds(0),
        SIZE_MAX,
        1234};
  });
  const ObjectInfo info = session->head("key").value();
  EXPECT_EQ(info.size, 1234u);
  EXPECT_EQ(info.tag, "t");
  EXPECT_EQ(info.modified_s, 1795563373);
  EXPECT_EQ(info.metadata, (ObjectMetadata{{"a", "1 2"}, {"b", "100%"}}));
}

// --- lists ----------------------------------------------------------------------------------------------------------

TEST(S3StoreTest, ListsGoOnPageByPage) {
  Session session([](const ServerRequest& request, int) {
    const bool second = request.query.starts_with("continuation-token=next%2F1&");
    std::string text =
        "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><EncodingType>url</EncodingType>";
    for (int i = 0; i < 1000; ++i)
      text += fmt::format(
          "<Contents><Key>p/{}+%2B%0A{:04}</Key><Size>{}</Size><ETag>&quot;t&quot;</"
          "ETag><LastModified>2026-11-24T23:36:13.000Z</LastModified></Contents>",
          second ? "b" : "a", i, i);
    text += "<Contents><Key>p/directory/</Key></Contents><Contents><Key>elsewhere</Key></Contents>";
    if (!second) text += "<IsTruncated>true</IsTruncated><NextContinuationToken>next/1</NextContinuationToken>";
    return ServerReply{200, {}, text + "</ListBucketResult>"};
  });
  const auto names = session->names().value();
  ASSERT_EQ(names.size(), 2000u);
  EXPECT_EQ(names.front(), "a +\n0000");
  EXPECT_EQ(names.back(), "b +\n0999");
  const ListPage page = session->page({}).value();
  EXPECT_EQ(page.objects[7].size, 7u);
  EXPECT_EQ(page.objects[7].tag, "t");
  EXPECT_EQ(page.objects[7].modified_s, 1795563373);
}

TEST(S3StoreTest, ATruncatedListIsTriedAgainAndThenCorrupted) {
  const std::string text = "<ListBucketResult><Contents><Key>p/a</Key></Contents></ListBucketResult>";
  for (size_t length = 1; length < text.size(); length += 7) {
    Session session([&](const ServerRequest&, int) { return ServerReply{200, {}, text.substr(0, length)}; });
    const Status status = session->page({}).status();
    EXPECT_TRUE(status.code() == StatusCode::kCorruption || status.code() == StatusCode::kWrongStore)
        << length << status.message();
  }
  Session again([&](const ServerRequest&, int count) {
    return ServerReply{200, {}, count == 1 ? text.substr(0, 40) : text};
  });
  EXPECT_EQ(again->names().value(), std::vector<std::string>{"a"});
}

TEST(S3StoreTest, AListWithoutEndIsRefused) {
  Session endless([](const ServerRequest&, int) {
    return ServerReply{200,
                       {},
                       "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>same</"
                       "NextContinuationToken></ListBucketResult>"};
  });
  EXPECT_EQ(endless->names().status().code(), StatusCode::kCorruption);
  Session no_token([](const ServerRequest&, int) {
    return ServerReply{200, {}, "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"};
  });
  EXPECT_EQ(no_token->names().status().code(), StatusCode::kCorruption);
}

TEST(S3StoreTest, AnAnswerLargerThanMemoryAllowsIsRefused) {
  Session session([](const ServerRequest&, int) {
    return ServerReply{200, {}, std::string(HttpClient::kTextBytesMax + 1, ' ')};
  });
  EXPECT_EQ(session->page({}).status().code(), StatusCode::kWrongStore);
}

TEST(S3StoreTest, RemovingWhatIsNotThereIsFine) {
  Session session([](const ServerRequest&, int) { return error_reply(404, "NoSuchKey"); });
  EXPECT_TRUE(session->remove("key").is_ok());
  Session bucket([](const ServerRequest&, int) { return error_reply(404, "NoSuchBucket"); });
  EXPECT_EQ(bucket->remove("key").code(), StatusCode::kWrongStore);
}

TEST(S3StoreTest, ManyAreRemovedByOneRequest) {
  Session session([](const ServerRequest&, int) {
    return ServerReply{200,
                       {},
                       "<DeleteResult><Error><Key>p/b</Key><Code>AccessDenied</Code></Error><Error><Key>p/c</"
                       "Key><Code>NoSuchKey</Code></Error></DeleteResult>"};
  });
  const auto failures = session->remove_many({"a<&", "b", "c"}).value();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].key, "b");
  EXPECT_EQ(failures[0].status.code(), StatusCode::kPermission);
  ServerRequest request = session.server().requests().at(0);
  EXPECT_NE(request.content.find("<Key>p/a&lt;&amp;</Key>"), std::string::npos) << request.content;
  EXPECT_EQ(request.headers.count("content-md5"), 1u);
  Session singly([](const ServerRequest&, int) { return ServerReply{204}; });
  EXPECT_TRUE(singly->remove_many({"a\x01", "b"}).value().empty());
  EXPECT_EQ(singly.server().count(), 2) << "XML has no control characters";
}

// --- uploads in parts -----------------------------------------------------------------------------------------------

TEST(S3StoreTest, AnUploadInParts) {
  const std::string tag = *tag_of_parts({md5_text("one"), md5_text("two")});
  Session session([&](const ServerRequest& request, int) {
    if (request.query == "uploads=")
      return ServerReply{
          200, {}, "<InitiateMultipartUploadResult><UploadId>id/+</UploadId></InitiateMultipartUploadResult>"};
    if (request.method == "PUT") return stored(request);
    return ServerReply{200,
                       {},
                       "  <?xml version=\"1.0\"?><CompleteMultipartUploadResult><ETag>&quot;" + tag +
                           "&quot;</ETag></CompleteMultipartUploadResult>"};
  });
  const Upload upload = session->begin("key", {{"mode", "1"}}).value();
  EXPECT_EQ(upload.id, "id/+");
  const StoredPart one = session->put_part(upload, 1, 0, "one").value(),
                   two = session->put_part(upload, 2, 3, "two").value();
  const StoredObject object = session->finish(upload, {one, two}).value();
  EXPECT_TRUE(object.verified);
  EXPECT_EQ(object.tag, tag);
  auto requests = session.server().requests();
  EXPECT_EQ(requests[0].headers["x-amz-meta-mode"], "1");
  EXPECT_EQ(requests[1].query, "partNumber=1&uploadId=id%2F%2B");
  EXPECT_NE(requests[3].content.find("<PartNumber>2</PartNumber>"), std::string::npos) << requests[3].content;
}

TEST(S3StoreTest, AFinishWhoseAnswerWasLostIsRecognised) {
  const std::string tag = *tag_of_parts({md5_text("one")});
  const auto serve = [&](const std::string& found) {
    return [&, found](const ServerRequest& request, int count) {
      if (request.method == "HEAD") return ServerReply{200, {"ETag: \"" + found + "\""}, ""};
      return count == 1 ? ServerReply{200, {}, "", milliseconds(0), 0} : error_reply(404, "NoSuchUpload");
    };
  };
  const std::vector<StoredPart> parts = {{1, 3, md5_text("one")}};
  Session ours(serve(tag));
  EXPECT_EQ(ours->finish({"key", "id"}, parts).value().tag, tag);
  Session anothers(serve("other"));
  EXPECT_EQ(anothers->finish({"key", "id"}, parts).status().code(), StatusCode::kNotFound);
  Session never([](const ServerRequest&, int) { return error_reply(404, "NoSuchUpload"); });
  EXPECT_EQ(never->finish({"key", "id"}, parts).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(never.server().count(), 1);
}

TEST(S3StoreTest, AFinishThatDoesNotSayTheTag) {
  const std::string tag = *tag_of_parts({md5_text("one")});
  for (const std::string& found : {tag, std::string("other")}) {
    Session session([&](const ServerRequest& request, int) {
      if (request.method == "HEAD") return ServerReply{200, {"ETag: \"" + found + "\""}, ""};
      return ServerReply{200, {}, "<CompleteMultipartUploadResult><ETag></ETag></CompleteMultipartUploadResult>"};
    });
    const StoredObject object = session->finish({"key", "id"}, {{1, 3, md5_text("one")}}).value();
    EXPECT_EQ(object.tag, found);
    EXPECT_EQ(object.verified, found == tag);
  }
}

// What RGW 16 says when an upload is finished that is gone.
TEST(S3StoreTest, AnInternalErrorOfAFinishIsLookedInto) {
  const std::string tag = *tag_of_parts({md5_text("one")});
  const std::vector<StoredPart> parts = {{1, 3, md5_text("one")}};
  std::atomic<bool> is_there = false, is_finished = false;
  Session session([&](const ServerRequest& request, int count) {
    if (request.method == "HEAD")
      return is_finished ? ServerReply{200, {"ETag: \"" + tag + "\""}, ""} : ServerReply{404};
    if (request.method == "GET")
      return is_there ? ServerReply{200, {}, "<ListPartsResult/>"} : error_reply(404, "NoSuchUpload");
    if (!is_there || count < 12) return error_reply(500, "InternalError");
    return ServerReply{
        200, {}, "<CompleteMultipartUploadResult><ETag>" + tag + "</ETag></CompleteMultipartUploadResult>"};
  });
  EXPECT_EQ(session->finish({"key", "id"}, parts).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(session.server().count(), 3);
  is_finished = true;
  EXPECT_EQ(session->finish({"key", "id"}, parts).value().tag, tag);
  EXPECT_EQ(session.server().count(), 6);
  is_finished = false;
  is_there = true;
  EXPECT_EQ(session->finish({"key", "id"}, parts).value().tag, tag) << "it failed for the moment";
  EXPECT_EQ(session.server().count(), 12);
}

TEST(S3StoreTest, AnErrorInsideOfASuccessIsAnError) {
  Session session([](const ServerRequest&, int) { return error_reply(200, "InvalidPart"); });
  const Status status = session->finish({"key", "id"}, {{1, 3, md5_text("one")}}).status();
  EXPECT_EQ(status.code(), StatusCode::kRefused) << status.message();
  const std::string tag = *tag_of_parts({md5_text("one")});
  Session later([&](const ServerRequest&, int count) {
    if (count == 1) return error_reply(200, "InternalError");
    return ServerReply{
        200, {}, "<CompleteMultipartUploadResult><ETag>" + tag + "</ETag></CompleteMultipartUploadResult>"};
  });
  EXPECT_TRUE(later->finish({"key", "id"}, {{1, 3, md5_text("one")}}).is_ok());
}

TEST(S3StoreTest, WhatIsUnfinishedIsFoundAndAborted) {
  Session session([](const ServerRequest& request, int) {
    if (request.method == "DELETE") return error_reply(404, "NoSuchUpload");
    if (request.query.find("uploadId=") != std::string::npos)
      return ServerReply{
          200,
          {},
          request.query.find("marker=0&") != std::string::npos
              ? "<ListPartsResult><Part><PartNumber>1</PartNumber><Size>5</Size><ETag>\"t\"</ETag></"
                "Part><IsTruncated>true</IsTruncated><NextPartNumberMarker>1</NextPartNumberMarker></ListPartsResult>"
              : "<ListPartsResult><Part><PartNumber>2</PartNumber><Size>3</Size><ETag>\"u\"</ETag></Part></"
                "ListPartsResult>"};
    return ServerReply{200,
                       {},
                       request.query.find("key-marker") == std::string::npos
                           ? "<ListMultipartUploadsResult><Upload><Key>p/a</Key><UploadId>1</UploadId></"
                             "Upload><IsTruncated>true</IsTruncated><NextKeyMarker>p/a</"
                             "NextKeyMarker><NextUploadIdMarker>1</NextUploadIdMarker></ListMultipartUploadsResult>"
                           : "<ListMultipartUploadsResult><Upload><Key>p/b</Key><UploadId>2</UploadId></Upload></"
                             "ListMultipartUploadsResult>"};
  });
  const auto uploads = session->uploads().value();
  ASSERT_EQ(uploads.size(), 2u);
  EXPECT_EQ(uploads[1].key, "b");
  const auto parts = session->parts(uploads[0]).value();
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[1].tag, "u");
  EXPECT_TRUE(session->abort(uploads[0]).is_ok()) << "it is gone, as wanted";
}

// --- many calls, and the end ----------------------------------------------------------------------------------------

TEST(S3StoreTest, NoMoreThanSoManyAtATime) {
  std::atomic<int> now = 0, most = 0;
  FaultyServer server([&](const ServerRequest& request, int) {
    most = std::max<int>(most, ++now);
    std::this_thread::sleep_for(milliseconds(5));
    --now;
    return stored(request);
  });
  S3Options options = Session::options(server.endpoint(), 20);
  options.url.connections = 3;
  S3Store store(options);
  std::atomic<int> succeeded = 0;
  std::promise<void> all;
  for (int i = 0; i < 60; ++i)
    store.put(fmt::format("key{}", i), test::bytes_of("content"), {}, [&](const Result<StoredObject>& put) {
      if (put.is_ok() && ++succeeded == 60) all.set_value();
    });
  ASSERT_EQ(all.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_EQ(most, 3);
}

TEST(S3StoreTest, ClosingAnswersEverything) {
  FaultyServer server([&](const ServerRequest&, int count) {
    return count % 2 == 0 ? error_reply(503, "SlowDown") : ServerReply{200, {}, "", milliseconds(60'000)};
  });
  S3Options options = Session::options(server.endpoint(), 60);
  options.stall_timeout = std::chrono::seconds(60);
  options.retry.pause_first = milliseconds(60'000);
  options.retry.pause_max = milliseconds(60'000);
  S3Store store(options);
  std::atomic<int> cancelled = 0;
  const auto count = [&](const Result<StoredObject>& put) {
    cancelled += put.status().code() == StatusCode::kCancelled;
  };
  for (int i = 0; i < 40; ++i) store.put(fmt::format("key{}", i), test::bytes_of("content"), {}, count);
  while (server.count() < 16) std::this_thread::sleep_for(milliseconds(1));
  store.close();
  EXPECT_EQ(cancelled, 40);
  store.put("key", test::bytes_of("content"), {}, count);
  EXPECT_EQ(cancelled, 41);
}

}  // namespace
}  // namespace fpfs
