#include "engine/tier/credentials.h"

#include <sys/stat.h>

#include <fstream>

#include <gtest/gtest.h>

#include "tests/engine/tier/faulty_server.h"
#include "tests/support/temporary_directory.h"

namespace fpfs {
namespace {

using test::FaultyServer;
using test::ServerReply;
using test::ServerRequest;

CredentialOptions nothing() {
  CredentialOptions options;
  options.instance_disabled = true;
  return options;
}

std::string role(const std::string& key, const std::string& expires) {
  return fmt::format(R"({{"Code":"Success","AccessKeyId":"{}","SecretAccessKey":"s","Token":"t","Expiration":"{}"}})",
                     key, expires);
}

constexpr int64_t kNow_s = 1'795'563'373;  // 2026-11-24T23:36:13Z

TEST(CredentialsTest, TheEnvironmentComesFirst) {
  CredentialOptions options = nothing();
  options.access_key = "A";
  options.secret_key = "S";
  options.session_token = "T";
  options.file_path = "/nonexistent";
  const Credentials found = CredentialSource(options).get(kNow_s).value();
  EXPECT_EQ(found.access_key, "A");
  EXPECT_EQ(found.secret_key, "S");
  EXPECT_EQ(found.session_token, "T");
}

TEST(CredentialsTest, WhatWouldBeginAnotherHeaderIsNoCredential) {
  const Result<Credentials> role =
      parse_role_credentials(R"({"AccessKeyId":"A","SecretAccessKey":"S","Token":"T\r\nx-amz-acl: public-read"})");
  EXPECT_EQ(role.status().code(), StatusCode::kCorruption);
  EXPECT_EQ(role.status().message().find("public-read"), std::string::npos);
  const std::string file = "[default]\naws_access_key_id=A\raws_x=y\naws_secret_access_key=S\n";
  EXPECT_FALSE(parse_credentials_file(file, "default").has_value());
}

TEST(CredentialsTest, AProfileOfTheFile) {
  const std::string text =
      "# comment\n[default]\naws_access_key_id=D\naws_secret_access_key = a=b/+ \n\n[ other ]\r\naws_access_key_id = "
      "O\r\n"
      "aws_secret_access_key = P\r\naws_session_token = Q\r\nregion = x\n[half]\naws_access_key_id = H\n";
  EXPECT_EQ(parse_credentials_file(text, "default")->secret_key, "a=b/+");
  EXPECT_EQ(parse_credentials_file(text, "other")->session_token, "Q");
  EXPECT_FALSE(parse_credentials_file(text, "half"));
  EXPECT_FALSE(parse_credentials_file(text, "missing"));
  EXPECT_FALSE(parse_credentials_file("", "default"));
  test::TemporaryDirectory directory;
  std::ofstream(directory / "credentials") << text;
  CredentialOptions options = nothing();
  options.file_path = directory / "credentials";
  options.profile = "other";
  EXPECT_EQ(CredentialSource(options).get(kNow_s).value().access_key, "O");
  options.profile = "missing";
  const Status status = CredentialSource(options).get(kNow_s).status();
  EXPECT_EQ(status.code(), StatusCode::kPermission);
  EXPECT_NE(status.message().find("no profile 'missing'"), std::string::npos) << status.message();
}

TEST(CredentialsTest, AnInstanceIsAskedWithAToken) {
  FaultyServer server([](const ServerRequest& request, int) {
    if (request.method == "PUT" && request.path == "/latest/api/token") return ServerReply{200, {}, "TOKEN"};
    if (request.headers.count("x-aws-ec2-metadata-token") == 0) return ServerReply{401};
    if (request.path.ends_with("/security-credentials/")) return ServerReply{200, {}, "my-role\n"};
    if (request.path.ends_with("/my-role")) return ServerReply{200, {}, role("I", "2026-11-25T05:00:00Z")};
    return ServerReply{404};
  });
  CredentialOptions options;
  options.instance_endpoint = server.endpoint();
  CredentialSource source(options);
  const Credentials found = source.get(kNow_s).value();
  EXPECT_EQ(found.access_key, "I");
  EXPECT_EQ(found.session_token, "t");
  EXPECT_EQ(found.expires_s, 1'795'582'800);
  EXPECT_EQ(server.count(), 3);
  EXPECT_TRUE(source.get(kNow_s + 60).is_ok());
  EXPECT_EQ(server.count(), 3) << "they are good for hours";
  EXPECT_TRUE(source.get(found.expires_s - 200).is_ok());
  EXPECT_EQ(server.count(), 6) << "they end soon";
  source.forget();
  EXPECT_TRUE(source.get(kNow_s).is_ok());
  EXPECT_EQ(server.count(), 9);
}

TEST(CredentialsTest, GoodOnesAreUsedWhileNobodyAnswers) {
  std::atomic<bool> down = false;
  FaultyServer server([&](const ServerRequest&, int) {
    return down ? ServerReply{500} : ServerReply{200, {}, role("C", "2026-11-25T00:00:00Z")};
  });
  CredentialOptions options = nothing();
  options.container_url = server.endpoint() + "/role";
  options.container_token = "Bearer x";
  CredentialSource source(options);
  const int64_t expires_s = source.get(kNow_s).value().expires_s;
  EXPECT_EQ(server.requests().at(0).headers["authorization"], "Bearer x");
  down = true;
  EXPECT_TRUE(source.get(expires_s - 100).is_ok());
  const Status status = source.get(expires_s).status();
  EXPECT_EQ(status.code(), StatusCode::kUnreachable);
  EXPECT_NE(status.message().find("credentials of the container's role: HTTP 500"), std::string::npos);
}

TEST(CredentialsTest, AnswersThatAreNone) {
  for (const std::string text : {"", "{", "[]", "null", "{\"AccessKeyId\":1}", "{\"AccessKeyId\":\"a\"}",
                                 "{\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"b\",\"Expiration\":\"soon\"}"})
    EXPECT_EQ(parse_role_credentials(text).status().code(), StatusCode::kCorruption) << text;
}

TEST(CredentialsTest, AMachineThatIsNoInstanceHasNone) {
  FaultyServer no_role([](const ServerRequest& request, int) {
    return request.method == "PUT" ? ServerReply{200, {}, "TOKEN"} : ServerReply{404};
  });
  CredentialOptions options;
  options.instance_endpoint = no_role.endpoint();
  EXPECT_EQ(CredentialSource(options).get(kNow_s).status().code(), StatusCode::kPermission);
  options.instance_endpoint = "http://127.0.0.1:1";
  EXPECT_EQ(CredentialSource(options).get(kNow_s).status().code(), StatusCode::kPermission);
}

}  // namespace
}  // namespace fpfs
