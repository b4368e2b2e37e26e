// JSON on stdout: keys in the order they were set, nothing else.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace fpfs::tools {

using Json = nlohmann::ordered_json;

// Prints one object and a line break. Bytes that are not UTF-8 (file names may hold any) become U+FFFD.
void print_json(const Json& object);

// The same on one line, for output of many objects.
void print_json_line(const Json& object);

// Reads a JSON object that a daemon of perhaps another version wrote; a discarded value when it is none.
Json parse_json(const std::string& text);

// Members of such an object, or the given value when they are absent or of another type.
uint64_t number_at(const Json& object, const char* key, uint64_t otherwise = 0);
double real_at(const Json& object, const char* key, double otherwise = 0);
std::string text_at(const Json& object, const char* key, const std::string& otherwise = "");
bool flag_at(const Json& object, const char* key, bool otherwise = false);
const Json& object_at(const Json& object, const char* key);  // an empty object when absent
const Json& array_at(const Json& object, const char* key);   // an empty array when absent

}  // namespace fpfs::tools
