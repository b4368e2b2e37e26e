#include "engine/tier/tier_url.h"

#include <gtest/gtest.h>

namespace fpfs {
namespace {

TEST(TierUrlTest, Directories) {
  const TierUrl url = parse_tier_url("file:///mnt/ceph%20fs/ckpt").value();
  EXPECT_EQ(url.kind, TierUrl::Kind::kFile);
  EXPECT_EQ(url.path, "/mnt/ceph fs/ckpt");
  EXPECT_EQ(describe(url), "file:///mnt/ceph fs/ckpt");
  EXPECT_EQ(url.connections, 16u);
  EXPECT_EQ(parse_tier_url("file:///mnt?connections=3").value().connections, 3u);
  EXPECT_EQ(parse_tier_url("file:///a%40b%3F").value().path, "/a@b?");
}

TEST(TierUrlTest, BucketsWithAllOptions) {
  const TierUrl url = parse_tier_url(
                          "s3://bucket/a/b%20c?endpoint=http://127.0.0.1:9000/&region=eu-1&profile=p&credentials=/etc/c"
                          "&ca=/etc/ca.pem&connections=4&deadline=20")
                          .value();
  EXPECT_EQ(url.kind, TierUrl::Kind::kS3);
  EXPECT_EQ(url.bucket, "bucket");
  EXPECT_EQ(url.prefix, "a/b c/");
  EXPECT_EQ(url.endpoint, "http://127.0.0.1:9000");
  EXPECT_EQ(url.region, "eu-1");
  EXPECT_EQ(url.profile, "p");
  EXPECT_EQ(url.credentials_path, "/etc/c");
  EXPECT_EQ(url.ca_path, "/etc/ca.pem");
  EXPECT_EQ(url.connections, 4u);
  EXPECT_EQ(url.deadline_s, 20u);
  EXPECT_EQ(describe(url), "s3://bucket/a/b c/ at http://127.0.0.1:9000");
}

TEST(TierUrlTest, DefaultsOfABucket) {
  EXPECT_EQ(parse_tier_url("s3://bucket?region=eu-west-3").value().endpoint, "https://s3.eu-west-3.amazonaws.com");
  const TierUrl url = parse_tier_url("s3://bucket/").value();
  EXPECT_EQ(url.prefix, "");
  EXPECT_EQ(url.region, "us-east-1");
}

TEST(TierUrlTest, OneClearLineForEachMistake) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"", "neither file:// nor s3://"},
      {"/mnt/ceph", "neither file:// nor s3://"},
      {"gs://bucket", "neither file:// nor s3://"},
      {"file://mnt/ceph", "no absolute path"},
      {"file:///mnt?region=x", "unknown option 'region'; there is connections"},
      {"file:///mnt/%zz", "two hexadecimal digits"},
      {"file:///mnt/%00", "NUL"},
      {"s3://", "no name of a bucket"},
      {"s3:///prefix", "no name of a bucket"},
      {"s3://ab", "no name of a bucket"},
      {"s3://-bucket", "no name of a bucket"},
      {"s3://key:secret@bucket/p", "they belong into the environment"},
      {"s3://host:9000/bucket", "belong into endpoint="},
      {"file://user:secret@host/mnt", "they belong into the environment"},
      {"s3://bucket/a//b", "empty name"},
      {"s3://bucket/../b", "'.' or '..'"},
      {"s3://bucket/%ff", "not UTF-8"},
      {"s3://bucket?endpoint", "the first option has no value"},
      {"s3://bucket?region=a&x", "the option behind region has no value"},
      {"s3://bucket?endpoint=host:9000", "does not begin with http:// or https://"},
      {"s3://bucket?endpoint=http://", "has no host"},
      {"s3://bucket?endpoint=http://h/bucket", "more than a host and a port"},
      {"s3://bucket?endpoint=http://u:p@h", "the endpoint has credentials"},
      {"s3://bucket?region=", "no name of a region"},
      {"s3://bucket?region=a&region=b", "given twice"},
      {"s3://bucket?regoin=a", "unknown option 'regoin'"},
      {"s3://bucket?secret_key=x", "would show a secret"},
      {"s3://bucket?connections=0", "not a number from 1 to 256"},
      {"s3://bucket?connections=2x", "not a number from 1 to 256"},
      {"s3://bucket?deadline=99999999999", "not a number from 1 to 86400"},
      {"s3://bucket?ca=ca.pem", "not an absolute path"},
      {"s3://bucket?profile=", "no name of a profile"},
  };
  for (const auto& [text, words] : mistakes) {
    const Result<TierUrl> url = parse_tier_url(text);
    ASSERT_FALSE(url.is_ok()) << text;
    EXPECT_EQ(url.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(url.status().message().find(words), std::string::npos) << text << ": " << url.status().message();
  }
}

TEST(TierUrlTest, MessagesShowNoSecret) {
  for (const std::string text :
       {"s3://key:hunter2@bucket/p", "s3://bucket?secret=hunter2", "s3://bucket?endpoint=http://u:hunter2@h",
        "S3://key:hunter2@bucket", "s3://bucket?aws_session_token=hunter2", "s3://hunter2@bucket", "s3:hunter2@bucket",
        "s3://key:hunt/hunter2@bucket", "file://key:hunter2@host/p", "file:///key:hunter2@host/p",
        "s3://bucket?endpoint=key:hunter2@h", "s3://bucket?endpoint=https:/key:hunter2@h", "s3://bucket?hunter2",
        "s3://bucket?region=a&hunter2", "s3://bucket?X-Amz-Signature=hunter2", "https://key:hunter2@host/bucket",
        "file://mnt?secret=hunter2"}) {
    const Result<TierUrl> url = parse_tier_url(text);
    ASSERT_FALSE(url.is_ok());
    EXPECT_EQ(url.status().message().find("hunter2"), std::string::npos) << url.status().message();
  }
}

}  // namespace
}  // namespace fpfs
