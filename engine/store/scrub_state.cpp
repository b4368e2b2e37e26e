#include "engine/store/scrub_state.h"

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/array/member_directory.h"
#include "engine/codec/hash.h"
#include "engine/index/superblock.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

namespace {

using Json = nlohmann::ordered_json;

constexpr unsigned kVersion = 2;  // 1 was binary
constexpr size_t kPathMax = 65535;
constexpr size_t kDetailMax = 1000;

Status corrupt(const std::string& what) {
  return Status::error(StatusCode::kCorruption, "the scrub state is not valid: " + what);
}

// --- what is around the content: its checksum ------------------------------------------------------------------------

constexpr std::string_view kBehindContent = "}\n";

std::string before_content(std::string_view content) {
  return fmt::format(R"({{"checksum":"{:016x}","scrub":)", hash_bytes(std::as_bytes(std::span(content))));
}

std::string seal(const std::string& content) {
  return before_content(content) + content + std::string(kBehindContent);
}

// The content of what seal() made; empty for everything else.
std::string_view unseal(std::string_view text) {
  const size_t before = before_content("").size();
  if (text.size() < before + kBehindContent.size()) return {};
  const std::string_view content = text.substr(before, text.size() - before - kBehindContent.size());
  return text.starts_with(before_content(content)) && text.ends_with(kBehindContent) ? content : std::string_view();
}

// --- bytes as text: names of files need not be UTF-8 -----------------------------------------------------------------

std::string escape(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    if (byte >= ' ' && byte <= '~' && byte != '%')
      text += byte;
    else
      fmt::format_to(std::back_inserter(text), "%{:02X}", static_cast<unsigned char>(byte));
  }
  return text;
}

// What escape() was given; some bytes for what it did not make.
std::string unescape(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      bytes += text[at];
      continue;
    }
    unsigned char byte = 0;
    const std::string_view digits = text.substr(at + 1, 2);
    static_cast<void>(std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16));
    bytes += static_cast<char>(byte);
    at += digits.size();
  }
  return bytes;
}

// --- the content -----------------------------------------------------------------------------------------------------

// Takes an object apart. Everything must be there, of its kind and in range.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  const Json& take(const char* key) {
    static const Json kNothing;
    const auto found = object_.find(key);  // its end, when it is no object
    if (found == object_.end()) {
      refuse(key);
      return kNothing;
    }
    return *found;
  }
  template <typename Number>
  void take(const char* key, Number& value, Number least = std::numeric_limits<Number>::min(),
            Number most = std::numeric_limits<Number>::max()) {
    const Json& field = take(key);
    const auto set = [&](auto number) {
      if (!std::in_range<Number>(number)) return refuse(key);
      value = static_cast<Number>(number);
      if (value < least || value > most) refuse(key);
    };
    if (field.is_number_unsigned())
      set(field.get<uint64_t>());
    else if (field.is_number_integer())
      set(field.get<int64_t>());
    else
      refuse(key);
  }
  template <typename Kind>
  void take(const char* key, StrongNumber<Kind>& value) {
    typename Kind::Representation number = 0;
    take(key, number);
    value = StrongNumber<Kind>(number);
  }
  void take(const char* key, std::string& value) {
    const Json& field = take(key);
    if (!field.is_string()) return refuse(key);
    value = unescape(field.get_ref<const std::string&>());
  }
  void take(const char* key, PassState::Phase& value) {
    std::string name;
    take(key, name);
    for (const auto phase : {PassState::Phase::kNone, PassState::Phase::kRunning, PassState::Phase::kPaused,
                             PassState::Phase::kFinished, PassState::Phase::kCancelled}) {
      if (name != name_of(phase)) continue;
      value = phase;
      return;
    }
    refuse(key);
  }
  Status status() const { return wrong_.empty() ? Status::ok() : corrupt(wrong_); }

 private:
  void refuse(const char* key) {
    if (wrong_.empty()) wrong_ = fmt::format("its {} makes no sense", key);
  }
  const Json& object_;
  std::string wrong_;
};

Json to_json(const CheckError& error) {
  Json object = {{"path", escape(std::string_view(error.path).substr(0, kPathMax))},
                 {"chunk", error.chunk},
                 {"member", error.member},
                 {"object_offset", error.object_offset},
                 {"kind", escape(error.kind)},
                 {"detail", escape(std::string_view(error.detail).substr(0, kDetailMax))}};
  if (!error.healing.empty()) object["healing"] = error.healing;
  return object;
}

Result<CheckError> error_from(const Json& object) {
  CheckError error;
  Fields fields(object);
  fields.take("path", error.path);
  fields.take("chunk", error.chunk, int64_t{-1});
  fields.take("member", error.member, -1, static_cast<int>(kMemberCountMax) - 1);
  fields.take("object_offset", error.object_offset, int64_t{-1});
  fields.take("kind", error.kind);
  fields.take("detail", error.detail);
  if (object.is_object() && object.contains("healing")) {
    fields.take("healing", error.healing);
    if (error.healing != "healed" && error.healing != "healable" && error.healing != "lost")
      return corrupt("its healing makes no sense");
  }
  FPFS_RETURN_IF_ERROR(fields.status());
  return error;
}

}  // namespace

void ScrubFindings::add(CheckError error) {
  ++(error.kind == kFailedSave ? failed_saves : errors);
  if (error.healing == "healed") ++healed;
  if (damage.size() >= kDamageMax) return;
  const auto before = std::find_if(damage.rbegin(), damage.rend(), [&error](const CheckError& known) {
    return known.path != error.path || known.chunk <= error.chunk;
  });
  damage.insert(before.base(), std::move(error));
}

std::string encode_scrub_state(const ScrubState& state, const Uuid& array_id) {
  // A path that is too long to be kept means starting again from the beginning.
  const std::string position = state.position.size() <= kPathMax ? escape(state.position) : "";
  Json content = {{"version", kVersion},
                  {"array", to_string(array_id)},
                  {"phase", name_of(state.phase)},
                  {"limit", state.limit},
                  {"started", state.started_seconds},
                  {"ended", state.ended_seconds},
                  {"active_ms", state.active_ms},
                  {"files", state.files},
                  {"chunks", state.chunks},
                  {"bytes", state.bytes},
                  {"errors", state.errors},
                  {"position", position},
                  {"file", state.file.value()},
                  {"generation", state.generation.value()},
                  {"next_chunk", state.next_chunk.value()}};
  if (state.bytes_total > 0) content["total"] = state.bytes_total;
  if (state.chunks_away > 0) content["away"] = state.chunks_away;
  if (state.healed > 0) content["healed"] = state.healed;
  if (state.failed_saves > 0) content["failed_saves"] = state.failed_saves;
  Json& damage = content["damage"] = Json::array();
  size_t size = seal(content.dump()).size();
  for (const CheckError& error : state.damage) {
    Json entry = to_json(error);
    size += entry.dump().size() + 1;
    if (damage.size() == ScrubState::kDamageMax || size > ScrubState::kEncodedMax) break;
    damage.push_back(std::move(entry));
  }
  return seal(content.dump());
}

Result<ScrubState> decode_scrub_state(std::string_view text, const Uuid& array_id) {
  const std::string_view content = unseal(text);
  if (content.empty()) return corrupt("its checksum is wrong, or it is none");
  const Json object = Json::parse(content, nullptr, false);
  Fields fields(object);
  unsigned version = 0;
  fields.take("version", version);
  if (version != kVersion) return corrupt("another version");
  std::string array;
  fields.take("array", array);
  if (array != to_string(array_id)) return corrupt("it is of another array");

  ScrubState state;
  fields.take("phase", state.phase);
  fields.take("limit", state.limit);
  fields.take("started", state.started_seconds);
  fields.take("ended", state.ended_seconds);
  fields.take("active_ms", state.active_ms);
  fields.take("files", state.files);
  fields.take("chunks", state.chunks);
  fields.take("bytes", state.bytes);
  fields.take("errors", state.errors);
  fields.take("position", state.position);
  fields.take("file", state.file);
  fields.take("generation", state.generation);
  fields.take("next_chunk", state.next_chunk);
  if (object.is_object() && object.contains("total")) fields.take("total", state.bytes_total, uint64_t{1});
  if (object.is_object() && object.contains("away")) fields.take("away", state.chunks_away, uint64_t{1});
  if (object.is_object() && object.contains("healed")) fields.take("healed", state.healed, uint64_t{1}, state.errors);
  if (object.is_object() && object.contains("failed_saves"))
    fields.take("failed_saves", state.failed_saves, uint64_t{1});
  const Json& damage = fields.take("damage");
  FPFS_RETURN_IF_ERROR(fields.status());
  if (!damage.is_array()) return corrupt("its damage makes no sense");
  for (const Json& entry : damage) {
    FPFS_ASSIGN_OR_RETURN(CheckError error, error_from(entry));
    state.damage.push_back(std::move(error));
  }
  // Other keys, other ways to write the same, more than is kept.
  if (encode_scrub_state(state, array_id) != text) return corrupt("it is not what would be written");
  return state;
}

Result<ScrubState> load_scrub_state(Storage& storage, const Array& array) {
  const Handle directory = array.metadata_directory();
  const Result<struct stat> attributes = storage.stat_at(directory, kScrubName);
  if (attributes.status().code() == StatusCode::kNotFound) return ScrubState();
  if (!attributes.is_ok()) return attributes.status();
  if (!S_ISREG(attributes->st_mode) || attributes->st_size > static_cast<off_t>(ScrubState::kEncodedMax))
    return corrupt("no regular file of its size");
  FPFS_ASSIGN_OR_RETURN(const Handle opened, storage.open_at(directory, kScrubName, O_RDONLY | O_NONBLOCK));
  const ScopedHandle file(storage, opened);
  std::string text(static_cast<size_t>(attributes->st_size), '\0');
  FPFS_ASSIGN_OR_RETURN(const size_t size, storage.pread(opened, std::as_writable_bytes(std::span(text)), 0));
  text.resize(size);
  return decode_scrub_state(text, array.id());
}

Status save_scrub_state(Storage& storage, const Array& array, const ScrubState& state) {
  const Handle directory = array.metadata_directory();
  FPFS_ASSIGN_OR_RETURN(const Handle opened,
                        storage.open_at(directory, kScrubNewName, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK, 0600));
  const ScopedHandle file(storage, opened);
  const std::string text = encode_scrub_state(state, array.id());
  FPFS_RETURN_IF_ERROR(storage.pwrite(opened, std::as_bytes(std::span(text)), 0));
  FPFS_RETURN_IF_ERROR(storage.fsync(opened));
  FPFS_RETURN_IF_ERROR(storage.rename(directory, kScrubNewName, directory, kScrubName, 0));
  return storage.fsync(directory);
}

}  // namespace fpfs
