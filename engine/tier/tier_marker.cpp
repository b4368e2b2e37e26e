#include "engine/tier/tier_marker.h"

#include <algorithm>
#include <ctime>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/base/one_line.h"
#include "engine/tier/tier_fence.h"

namespace fpfs {
namespace {

constexpr int kFormat = 1;
constexpr size_t kIdentityBytesMax = 4096;

std::string arrays_prefix() {
  return std::string(ObjectStore::kMarkerPrefix) + "/arrays/";
}

bool is_uuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
    const bool is_digit = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
    if (is_dash ? text[i] != '-' : !is_digit) return false;
  }
  return true;
}

bool contains(const std::vector<std::string>& sorted, const std::string& text) {
  return std::binary_search(sorted.begin(), sorted.end(), text);
}

std::string list_of(const std::vector<std::string>& arrays) {
  if (arrays.size() == 1) return "array " + arrays[0];
  return fmt::format("{} arrays, {} among them", arrays.size(), arrays.at(0));
}

// A store, and what is asked of it step by step. `done` gets no identity where nobody has made this a store. Without
// ObjectStore::check(), by which FileStore remembers an identity: of two that are being written, one will not stay.
class Reading {
 public:
  using Done = ObjectStore::Done<std::optional<TierIdentity>>;

  static void start(ObjectStore& store, Done done) { read_identity(std::make_shared<Reading>(store, std::move(done))); }
  Reading(ObjectStore& store, Done done) : store_(store), done_(std::move(done)) {}

 private:
  using Self = std::shared_ptr<Reading>;

  static void read_identity(const Self& self) {
    self->text_.resize(kIdentityBytesMax);
    self->store_.get(tier_identity_key(), 0, std::as_writable_bytes(std::span(self->text_)), "",
                     [self](const Result<ReadRange>& range) {
                       if (!range.is_ok() && range.status().code() == StatusCode::kNotFound)
                         return self->done_(std::optional<TierIdentity>());
                       if (!range.is_ok()) return self->done_(range.status());
                       const auto id = parse_tier_identity(std::string_view(self->text_).substr(0, range->length));
                       if (!id.is_ok())
                         return self->done_(id.status().with_context(
                             fmt::format("tier: {}: {}", self->store_.describe(), tier_identity_key())));
                       self->identity_.store_id = *id;
                       list_arrays(self, "");
                     });
  }

  static void list_arrays(const Self& self, const std::string& position) {
    ListRequest request;
    request.prefix = arrays_prefix();
    request.position = position;
    self->store_.list(request, [self](const Result<ListPage>& page) {
      if (!page.is_ok()) return self->done_(page.status());
      for (const ObjectInfo& object : page->objects) {
        const std::string name = object.key.substr(arrays_prefix().size());
        if (is_uuid(name)) self->identity_.arrays.push_back(name);
      }
      if (!page->position.empty()) return list_arrays(self, page->position);
      std::ranges::sort(self->identity_.arrays);
      self->done_(std::optional<TierIdentity>(std::move(self->identity_)));
    });
  }

  ObjectStore& store_;
  const Done done_;
  std::string text_;
  TierIdentity identity_;
};

Result<TierIdentity> judge(const ObjectStore& store, const std::string& array_id, const std::string& store_id,
                           const std::optional<TierIdentity>& found) {
  const auto wrong = [&](const std::string& why) {
    return Status::error(StatusCode::kWrongStore, fmt::format("tier: {} {}", store.describe(), why));
  };
  if (!found && store_id.empty())
    return Status::error(
        StatusCode::kNotFound,
        fmt::format("tier: {} is not the store of any array yet; it has to be made one first", store.describe()));
  if (!found)
    return wrong(
        fmt::format("has no {}, but this array copies to store {}: is the filesystem mounted, and is it the "
                    "right directory, bucket and prefix?",
                    tier_identity_key(), store_id));
  if (!store_id.empty() && found->store_id != store_id)
    return wrong(
        fmt::format("is store {}, but this array copies to store {}: is it the right directory, bucket and "
                    "prefix?",
                    found->store_id, store_id));
  if (contains(found->arrays, array_id)) return *found;
  if (found->arrays.empty())
    return wrong(
        fmt::format("is used by no array any more, not by this one ({}) either; make it its store again", array_id));
  return wrong(fmt::format("is in use by {}, not by this one ({}); use another prefix, or have it shared",
                           list_of(found->arrays), array_id));
}

// "2026-11-26 17:30"; empty: there is none.
std::string minute_of(int64_t seconds) {
  const auto time = static_cast<time_t>(seconds);
  struct tm parts {};
  char text[32];
  if (seconds <= 0 || ::gmtime_r(&time, &parts) == nullptr) return "";
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts)};
}

std::string describe_record(const std::string& array_id, std::string_view text, int64_t last_there_s) {
  const nlohmann::json record = nlohmann::json::parse(text, nullptr, false);
  const auto text_of = [&record](const char* key) {
    const bool is_there = record.is_object() && record.contains(key) && record[key].is_string();
    return is_there ? record[key].get<std::string>() : std::string();
  };
  const bool has_since = record.is_object() && record.contains("since_s") && record["since_s"].is_number_integer();
  std::string place, times;
  if (const std::string host = text_of("host"); !host.empty()) place = "on " + host;
  if (const std::string mounted_at = text_of("mounted_at"); !mounted_at.empty())
    place += (place.empty() ? "at " : " at ") + mounted_at;
  if (const std::string since = has_since ? minute_of(record["since_s"].get<int64_t>()) : ""; !since.empty())
    times = "since " + since;
  if (const std::string last = minute_of(last_there_s); !last.empty())
    times += (times.empty() ? "last there " : ", last there ") + last;
  if (!times.empty()) times += " UTC";
  if (place.empty() && times.empty()) return array_id;
  return one_line(fmt::format("{} ({}{}{})", array_id, place, place.empty() || times.empty() ? "" : ", ", times));
}

// init_tier(), step by step.
class Making {
 public:
  using Done = ObjectStore::Done<TierIdentity>;
  using Self = std::shared_ptr<Making>;

  Making(ObjectStore& store, TierInit init, Done done)
      : store_(store), init_(std::move(init)), done_(std::move(done)) {}

  static void start(const Self& self) {
    Reading::start(self->store_, [self](const Result<std::optional<TierIdentity>>& found) {
      if (!found.is_ok()) return self->done_(found.status());
      if (!*found) return look_for_others(self);
      self->store_id_ = (*found)->store_id;
      if (contains((*found)->arrays, self->init_.array_id)) return self->done_(**found);
      if (!(*found)->arrays.empty() && !self->init_.share)
        return self->refuse(
            fmt::format("is in use by {}; use another prefix, or have it shared", list_of((*found)->arrays)));
      add_array(self);
    });
  }

 private:
  void refuse(const std::string& why) {
    done_(Status::error(StatusCode::kExists, fmt::format("tier: {} {}", store_.describe(), why)));
  }

  static void look_for_others(const Self& self) {
    if (self->init_.has_other_files) return make_identity(self);
    self->store_.list({}, [self](const Result<ListPage>& page) {
      if (!page.is_ok()) return self->done_(page.status());
      for (const ObjectInfo& object : page->objects)
        if (!object.key.starts_with(arrays_prefix()) && !object.key.starts_with(fences_prefix()))
          return self->refuse(
              fmt::format("has other files in it, '{}' for one, which copies could replace; use an empty "
                          "directory or prefix, or say that it may be (--existing)",
                          object.key));
      make_identity(self);
    });
  }

  static void make_identity(const Self& self) {
    self->store_id_ = self->init_.new_store_id;
    const nlohmann::ordered_json identity = {{"format", kFormat},
                                             {"store", self->store_id_},
                                             {"made_s", self->init_.now_s},
                                             {"what", "fastpersistfs keeps copies here; without this file it refuses"}};
    self->put(self, tier_identity_key(), identity, &Making::add_array);
  }

  static void add_array(const Self& self) {
    const nlohmann::ordered_json record = {{"format", kFormat},
                                           {"store", self->store_id_},
                                           {"array", self->init_.array_id},
                                           {"host", self->init_.host},
                                           {"mounted_at", self->init_.mounted_at},
                                           {"since_s", self->init_.now_s}};
    self->put(self, arrays_prefix() + self->init_.array_id, record, &Making::look_again);
  }

  static void put(const Self& self, const std::string& key, const nlohmann::ordered_json& content,
                  void (*next)(const Self&)) {
    // What is no UTF-8 in the host's name is replaced.
    self->text_ = content.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    // With metadata, as copies have: a store that takes none is found out here.
    const ObjectMetadata metadata = {{"format", std::to_string(kFormat)}};
    self->store_.put(key, std::as_bytes(std::span(self->text_)), metadata,
                     [self, next](const Result<StoredObject>& stored) {
                       stored.is_ok() ? next(self) : self->done_(stored.status());
                     });
  }

  // Two that make it a store at one moment both write the identity, and one of them wins.
  static void look_again(const Self& self) {
    Reading::start(self->store_, [self](const Result<std::optional<TierIdentity>>& found) {
      if (!found.is_ok()) return self->done_(found.status());
      if (!*found || (*found)->store_id != self->store_id_)
        return self->withdraw("was made a store by another array at the same moment; try again");
      std::vector<std::string> others = (*found)->arrays;
      std::erase(others, self->init_.array_id);
      if (!others.empty() && !self->init_.share)
        return self->withdraw(
            fmt::format("is in use by {} since this moment; use another prefix, or have it shared", list_of(others)));
      self->done_(**found);
    });
  }

  void withdraw(const std::string& why) {
    const Status refusal = Status::error(StatusCode::kExists, fmt::format("tier: {} {}", store_.describe(), why));
    leave_tier(store_, init_.array_id, [done = done_, refusal](const Status&) { done(refusal); });
  }

  ObjectStore& store_;
  const TierInit init_;
  const Done done_;
  std::string store_id_;
  std::string text_;  // that is being written
};

}  // namespace

// The fence is replaced at each mount, and by and by while something is copied.
void describe_tier_array(ObjectStore& store, const std::string& array_id, ObjectStore::Done<std::string> done) {
  const auto text = std::make_shared<std::string>(kIdentityBytesMax, '\0');
  store.get(arrays_prefix() + array_id, 0, std::as_writable_bytes(std::span(*text)), "",
            [&store, array_id, text, done = std::move(done)](const Result<ReadRange>& range) {
              if (!range.is_ok()) return done(array_id);
              text->resize(range->length);
              store.head(fences_prefix() + array_id, [array_id, text, done](const Result<ObjectInfo>& fence) {
                done(describe_record(array_id, *text, fence.is_ok() ? fence->modified_s : 0));
              });
            });
}

Status check_tier_uuid(const char* what, std::string_view text) {
  if (is_uuid(text)) return Status::ok();
  return Status::error(
      StatusCode::kInvalidArgument,
      fmt::format("tier: {0} '{1}' is no id of one, like 0f1e2d3c-4b5a-4697-8877-665544332211", what, text));
}

std::string tier_identity_key() {
  return std::string(ObjectStore::kMarkerPrefix) + "/identity";
}

Result<std::string> parse_tier_identity(std::string_view text) {
  const nlohmann::json identity = nlohmann::json::parse(text, nullptr, false);
  const auto damaged = Status::error(StatusCode::kCorruption, "it does not say which store this is; it is damaged");
  if (!identity.is_object()) return damaged;
  const auto format = identity.find("format"), store = identity.find("store");
  if (format == identity.end() || !format->is_number_integer()) return damaged;
  if (*format != kFormat)
    return Status::error(StatusCode::kUnsupported,
                         fmt::format("its format is {}; this version knows {}", format->dump(), kFormat));
  if (store == identity.end() || !store->is_string() || !is_uuid(store->get_ref<const std::string&>())) return damaged;
  return store->get<std::string>();
}

void check_tier(ObjectStore& store, const std::string& array_id, const std::string& store_id,
                ObjectStore::Done<TierIdentity> done) {
  Status valid = check_tier_uuid("array", array_id);
  if (valid.is_ok() && !store_id.empty()) valid = check_tier_uuid("store", store_id);
  if (!valid.is_ok()) return store.check([valid, done = std::move(done)](const Status&) { done(valid); });
  store.check([&store, array_id, store_id, done = std::move(done)](const Status& status) {
    if (!status.is_ok()) return done(status);
    Reading::start(store, [&store, array_id, store_id, done](const Result<std::optional<TierIdentity>>& found) {
      found.is_ok() ? done(judge(store, array_id, store_id, *found)) : done(found.status());
    });
  });
}

void read_tier(ObjectStore& store, ObjectStore::Done<std::optional<TierIdentity>> done) {
  Reading::start(store, std::move(done));
}

void init_tier(ObjectStore& store, const TierInit& init, ObjectStore::Done<TierIdentity> done) {
  Status valid = check_tier_uuid("array", init.array_id);
  if (valid.is_ok()) valid = check_tier_uuid("store", init.new_store_id);
  if (!valid.is_ok()) return store.check([valid, done = std::move(done)](const Status&) { done(valid); });
  Making::start(std::make_shared<Making>(store, init, std::move(done)));
}

void leave_tier(ObjectStore& store, const std::string& array_id, ObjectStore::DoneStatus done) {
  const Status valid = check_tier_uuid("array", array_id);
  if (!valid.is_ok()) return store.check([valid, done = std::move(done)](const Status&) { done(valid); });
  store.remove(arrays_prefix() + array_id, [&store, array_id, done = std::move(done)](const Status& removed) {
    removed.is_ok() ? remove_fence(store, array_id, done) : done(removed);
  });
}

}  // namespace fpfs
