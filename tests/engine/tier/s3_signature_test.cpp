#include "engine/tier/s3_signature.h"

#include <gtest/gtest.h>

namespace fpfs {
namespace {

const Credentials kExample{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "", 0};
constexpr int64_t kExampleTime_s = 1369353600;  // 2013-05-24 00:00:00
constexpr const char* kEmptyHash =
    "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string authorization(const HttpRequest& request) {
  for (const std::string& header : request.headers)
    if (header.starts_with("Authorization: ")) return header.substr(15);
  return "";
}

HttpRequest example(const std::string& method, const std::string& url) {
  HttpRequest request;
  request.method = method;
  request.url = url;
  request.region = "us-east-1";
  request.headers = {kEmptyHash};
  return request;
}

// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
TEST(S3SignatureTest, ExamplesOfAws) {
  HttpRequest get = example("GET", "https://examplebucket.s3.amazonaws.com/test.txt");
  get.headers.emplace_back("Range: bytes=0-9");
  ASSERT_TRUE(sign_s3_request(get, kExample, kExampleTime_s).is_ok());
  EXPECT_EQ(authorization(get),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  EXPECT_TRUE(get.region.empty()) << "libcurl would sign it again";
  HttpRequest lifecycle = example("GET", "https://examplebucket.s3.amazonaws.com:443/?lifecycle=");
  ASSERT_TRUE(sign_s3_request(lifecycle, kExample, kExampleTime_s).is_ok());
  EXPECT_TRUE(authorization(lifecycle).ends_with("fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
  HttpRequest list = example("GET", "https://examplebucket.s3.amazonaws.com?max-keys=2&prefix=J");
  ASSERT_TRUE(sign_s3_request(list, kExample, kExampleTime_s).is_ok());
  EXPECT_TRUE(authorization(list).ends_with("34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
}

TEST(S3SignatureTest, HeadersAreSortedByTheirNames) {
  HttpRequest request = example("PUT", "http://127.0.0.1:9000/bucket/key");
  for (const char* header :
       {"x-amz-copy-source-range: bytes=0-9", "X-Amz-Copy-Source: /bucket/from", "x-amz-meta-empty;"})
    request.headers.emplace_back(header);
  Credentials credentials = kExample;
  credentials.session_token = "SESSION";
  ASSERT_TRUE(sign_s3_request(request, credentials, kExampleTime_s).is_ok());
  EXPECT_NE(authorization(request).find("SignedHeaders=host;x-amz-content-sha256;x-amz-copy-source;"
                                        "x-amz-copy-source-range;x-amz-date;x-amz-meta-empty;x-amz-security-token,"),
            std::string::npos)
      << authorization(request);
  for (const std::string& header : request.headers) EXPECT_EQ(header.find("wJalrXUtnFEMI"), std::string::npos);
}

}  // namespace
}  // namespace fpfs
