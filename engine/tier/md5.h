// MD5, which S3 services check content by (Content-MD5) and name versions with (ETag). Not against attackers: chunks
// have their own checksums.
//
// Thread safety: pure.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fpfs {

using Md5 = std::array<std::byte, 16>;

// None where this machine's libcrypto refuses MD5 (FIPS).
std::optional<Md5> md5_of(std::span<const std::byte> bytes);
std::string base64(std::span<const std::byte> digest);  // at most 48 bytes
std::string hexadecimal(const Md5& digest);
// None when it is not 32 small hexadecimal digits.
std::optional<Md5> md5_from_hexadecimal(std::string_view text);
// The ETag that services give to an object that was uploaded in parts with these: the MD5 of their MD5s, "-", their
// number. None when one of them is no MD5.
std::optional<std::string> tag_of_parts(const std::vector<std::string>& tags);

}  // namespace fpfs
