// What may be a key and what may be metadata (object_store.h), and text with '%XX' in it.
//
// Thread safety: pure.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/status.h"
#include "engine/tier/object_store.h"

namespace fpfs {

// kInvalidArgument, with a line that says what is wrong. `prefix_bytes`: what the store puts before the key.
Status check_key(std::string_view key, size_t prefix_bytes);
// The same for what is the beginning of keys: may be empty, and may end anywhere.
Status check_key_prefix(std::string_view prefix, size_t prefix_bytes);
Status check_metadata(const ObjectMetadata& metadata);

// RFC 3986: everything but a-z A-Z 0-9 - . _ ~ becomes %XX, with capital digits; '/' stays where `keep_slash`.
std::string percent_encode(std::string_view text, bool keep_slash);
// kInvalidArgument for a '%' that no two hexadecimal digits follow.
Result<std::string> percent_decode(std::string_view text);

bool is_utf8(std::string_view text);

}  // namespace fpfs
