#include "engine/tier/crc32c.h"

#include <gtest/gtest.h>

#include "engine/tier/s3_checksum.h"
#include "tests/engine/tier/blocking_store.h"

namespace fpfs {
namespace {

// RFC 3720, appendix B.4, and the usual check value.
TEST(Crc32cTest, KnownValues) {
  const std::vector<std::pair<std::string, uint32_t>> cases = {
      {"", 0}, {"123456789", 0xe3069283}, {std::string(32, '\0'), 0x8a9136aa}, {std::string(32, '\xff'), 0x62a8ab43}};
  for (const auto& [text, checksum] : cases) {
    EXPECT_EQ(crc32c(test::bytes_of(text)), checksum);
    EXPECT_EQ(crc32c_by_tables(test::bytes_of(text)), checksum);
  }
}

TEST(Crc32cTest, TheInstructionAndTheTablesAgree) {
  const std::string content = test::content_of(5000, 1);
  for (size_t begin = 0; begin < 9; ++begin)
    for (size_t length = 0; length < 600; length += length < 40 ? 1 : 37) {
      const auto bytes = test::bytes_of(content).subspan(begin, length);
      EXPECT_EQ(crc32c(bytes), crc32c_by_tables(bytes)) << begin << " " << length;
    }
}

TEST(S3ChecksumTest, OfContentAndOfParts) {
  EXPECT_EQ(s3_checksum(test::bytes_of("123456789")), "4waSgw==");
  // The checksum of the bytes e3 06 92 83 00 00 00 00.
  const std::string both("\xe3\x06\x92\x83\0\0\0\0", 8);
  EXPECT_EQ(s3_checksum_of_parts({"4waSgw==", "AAAAAA=="}).value(), s3_checksum(test::bytes_of(both)) + "-2");
  for (const std::string bad : {"", "4waSgw", "4waSgw=", "4waSgwAA", "4wa*gw=="})
    EXPECT_FALSE(s3_checksum_of_parts({"4waSgw==", bad}).has_value()) << bad;
}

}  // namespace
}  // namespace fpfs
