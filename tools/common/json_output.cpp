#include "tools/common/json_output.h"

#include <cstdio>

#include <fmt/format.h>

namespace fpfs::tools {

void print_json(const Json& object) {
  fmt::print("{}\n", object.dump(2, ' ', false, Json::error_handler_t::replace));
}

void print_json_line(const Json& object) {
  fmt::print("{}\n", object.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Json parse_json(const std::string& text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

namespace {

const Json* find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

}  // namespace

double real_at(const Json& object, const char* key, double otherwise) {
  const Json* value = find(object, key);
  return value != nullptr && value->is_number() ? value->get<double>() : otherwise;
}

uint64_t number_at(const Json& object, const char* key, uint64_t otherwise) {
  const Json* value = find(object, key);
  if (value == nullptr || !value->is_number()) return otherwise;
  if (value->is_number_float())
    return value->get<double>() < 0 ? otherwise : static_cast<uint64_t>(value->get<double>());
  return value->is_number_unsigned() || value->get<int64_t>() >= 0 ? value->get<uint64_t>() : otherwise;
}

std::string text_at(const Json& object, const char* key, const std::string& otherwise) {
  const Json* value = find(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : otherwise;
}

bool flag_at(const Json& object, const char* key, bool otherwise) {
  const Json* value = find(object, key);
  return value != nullptr && value->is_boolean() ? value->get<bool>() : otherwise;
}

const Json& object_at(const Json& object, const char* key) {
  static const Json kEmpty = Json::object();
  const Json* value = find(object, key);
  return value != nullptr && value->is_object() ? *value : kEmpty;
}

const Json& array_at(const Json& object, const char* key) {
  static const Json kEmpty = Json::array();
  const Json* value = find(object, key);
  return value != nullptr && value->is_array() ? *value : kEmpty;
}

}  // namespace fpfs::tools
