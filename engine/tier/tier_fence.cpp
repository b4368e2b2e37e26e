#include "engine/tier/tier_fence.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/tier/tier_marker.h"

namespace fpfs {
namespace {

constexpr int kFenceFormat = 1;
constexpr size_t kFenceBytesMax = 1024;
constexpr size_t kFenceTokenMax = 64;
constexpr size_t kFencesKnown = 8;

}  // namespace

std::string fences_prefix() {
  return std::string(ObjectStore::kMarkerPrefix) + "/fences/";
}

Result<TierFence> parse_fence(std::string_view text) {
  const nlohmann::json fence = nlohmann::json::parse(text, nullptr, false);
  const auto damaged = Status::error(StatusCode::kCorruption, "it does not say who copied here last; it is damaged");
  if (!fence.is_object()) return damaged;
  const auto format = fence.find("format"), token = fence.find("token");
  if (format == fence.end() || !format->is_number_integer()) return damaged;
  if (*format != kFenceFormat)
    return Status::error(StatusCode::kUnsupported,
                         fmt::format("its format is {}; this version knows {}", format->dump(), kFenceFormat));
  if (token == fence.end() || !token->is_string()) return damaged;
  TierFence said{token->get<std::string>()};
  if (said.token.empty() || said.token.size() > kFenceTokenMax) return damaged;
  if (const auto ended = fence.find("ended"); ended != fence.end()) {
    if (!ended->is_boolean()) return damaged;
    said.ended = ended->get<bool>();
  }
  if (const auto by = fence.find("by"); by != fence.end()) {
    if (!by->is_string() || !check_tier_uuid("array", by->get_ref<const std::string&>()).is_ok()) return damaged;
    said.by = by->get<std::string>();
  }
  return said;
}

void read_fence(ObjectStore& store, const std::string& array_id, ObjectStore::Done<TierFence> done) {
  const auto text = std::make_shared<std::string>(kFenceBytesMax, '\0');
  const std::string key = fences_prefix() + array_id;
  store.get(key, 0, std::as_writable_bytes(std::span(*text)), "",
            [&store, key, text, done = std::move(done)](const Result<ReadRange>& range) {
              if (range.status().code() == StatusCode::kNotFound) return done(TierFence());
              if (!range.is_ok()) return done(range.status());
              const Result<TierFence> fence = parse_fence(std::string_view(*text).substr(0, range->length));
              if (fence.is_ok()) return done(fence);
              done(fence.status().with_context(fmt::format("tier: {}: {}", store.describe(), key)));
            });
}

void write_fence(ObjectStore& store, const std::string& array_id, const TierFence& fence,
                 ObjectStore::DoneStatus done) {
  nlohmann::ordered_json content = {{"format", kFenceFormat}, {"array", array_id}, {"token", fence.token}};
  if (fence.ended) content["ended"] = true;
  if (!fence.by.empty()) content["by"] = fence.by;
  const auto text = std::make_shared<std::string>(content.dump() + "\n");
  store.put(fences_prefix() + array_id, std::as_bytes(std::span(*text)), {},
            [text, done = std::move(done)](const Result<StoredObject>& stored) { done(stored.status()); });
}

void remove_fence(ObjectStore& store, const std::string& array_id, ObjectStore::DoneStatus done) {
  store.remove(fences_prefix() + array_id, std::move(done));
}

std::vector<std::string> known_fences(const std::vector<std::string>& known, const std::string& stored,
                                      const std::string& next) {
  std::vector<std::string> kept(known.end() - static_cast<ptrdiff_t>(std::min(known.size(), kFencesKnown - 2)),
                                known.end());
  std::erase(kept, stored);
  if (!stored.empty()) kept.insert(kept.begin(), stored);
  kept.push_back(next);
  return kept;
}

}  // namespace fpfs
