#include "engine/tier/tier_binding.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/array/member_directory.h"
#include "engine/tier/tier_url.h"

namespace fpfs {
namespace {

constexpr int kBindingFormat = 1;

Status bad_binding(const Array& array, const Status& why) {
  return Status::error(why.code(), fmt::format("tier: {}/{} {}; say again where this array copies to: fpfs tier set",
                                               array.metadata_path(), kTierName, why.message()));
}

}  // namespace

std::string encode_binding(const TierBinding& binding, const Uuid& array_id) {
  nlohmann::ordered_json content = {{"format", kBindingFormat},
                                    {"array", to_string(array_id)},
                                    {"store", binding.store_id},
                                    {binding.has_left ? "left" : "url", binding.url}};
  if (!binding.fences.empty()) content["fences"] = binding.fences;
  if (binding.is_away) content["away"] = true;
  if (binding.shares) content["shares"] = true;
  if (!binding.restores.empty()) content["restores"] = binding.restores;
  if (!binding.restored.empty()) content["restored"] = binding.restored;
  return content.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Result<TierBinding> decode_binding(std::string_view text, const Uuid& array_id) {
  const auto damaged = Status::error(StatusCode::kCorruption, "is damaged");
  const nlohmann::json content = nlohmann::json::parse(text, nullptr, false);
  if (!content.is_object()) return damaged;
  const auto format = content.find("format");
  if (format == content.end() || !format->is_number_integer()) return damaged;
  if (*format != kBindingFormat)
    return Status::error(StatusCode::kUnsupported,
                         fmt::format("has format {}, this version knows {}", format->dump(), kBindingFormat));
  const auto text_at = [&content](const char* key) {
    const auto found = content.find(key);
    return found != content.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (text_at("array") != to_string(array_id)) return Status::error(StatusCode::kCorruption, "is of another array");
  const bool has_left = !text_at("left").empty() && text_at("url").empty();
  TierBinding binding{text_at("store"), text_at(has_left ? "left" : "url")};
  binding.has_left = has_left;
  for (const auto& [key, texts] : {std::pair("fences", &binding.fences), std::pair("restored", &binding.restored)}) {
    const auto list = content.find(key);
    if (list == content.end()) continue;
    if (!list->is_array()) return damaged;
    for (const nlohmann::json& value : *list) {
      if (!value.is_string()) return damaged;
      texts->push_back(value.get<std::string>());
    }
  }
  if (const auto away = content.find("away"); away != content.end()) {
    if (!away->is_boolean()) return damaged;
    binding.is_away = away->get<bool>();
  }
  if (const auto shares = content.find("shares"); shares != content.end()) {
    if (!shares->is_boolean()) return damaged;
    binding.shares = shares->get<bool>();
  }
  binding.restores = text_at("restores");
  if (binding.store_id.empty() || !parse_tier_url(binding.url).is_ok()) return damaged;
  return binding;
}

Result<std::optional<TierBinding>> load_binding(Storage& storage, const Array& array, bool also_left) {
  const auto bytes = read_small_file(storage, array.metadata_directory(), kTierName, TierBinding::kBytesMax);
  if (bytes.status().code() == StatusCode::kNotFound) return std::optional<TierBinding>();
  if (!bytes.is_ok()) return bytes.status();
  const Result<TierBinding> binding =
      decode_binding(std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size()), array.id());
  if (!binding.is_ok()) return bad_binding(array, binding.status());
  if (binding->has_left && !also_left) return std::optional<TierBinding>();
  return std::optional<TierBinding>(*binding);
}

Status save_binding(Storage& storage, const Array& array, const std::optional<TierBinding>& binding) {
  const Handle directory = array.metadata_directory();
  if (binding.has_value()) {
    const std::string text = encode_binding(*binding, array.id());
    return replace_file(storage, directory, kTierName, kTierNewName, std::as_bytes(std::span(text)));
  }
  const Status removed = storage.unlink(directory, kTierName);
  if (!removed.is_ok() && removed.code() != StatusCode::kNotFound) return removed;
  return storage.fsync(directory);
}

}  // namespace fpfs
