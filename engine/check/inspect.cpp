#include "engine/check/inspect.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/base/ranges.h"
#include "engine/check/object_space.h"
#include "engine/check/repair.h"

namespace fpfs {

namespace {

// An index that contradicts itself does so at once or all over; each is a line for a person to read.
constexpr size_t kErrorsOfOneFileMax = 100;

class Inspector {
 public:
  Inspector(Storage& storage, Array& array, const std::string& path, const ScannedFile& file, bool judge_space)
      : storage_(storage), array_(array), path_(path), file_(file), judge_space_(judge_space) {}

  FileInspection run();

 private:
  void inspect_sidecar();
  void inspect_extents();
  void inspect_object(MemberIndex member, const std::vector<PlacedChunk>& chunks);
  void check_overlaps(MemberIndex member, const std::vector<PlacedChunk>& chunks);
  void check_length(MemberIndex member, const std::vector<PlacedChunk>& chunks, ObjectOffset end);
  CheckError& report(const char* kind, std::string detail);
  void report_lost(MemberIndex member, const std::vector<PlacedChunk>& lost, const char* kind, const std::string& why);

  Storage& storage_;
  Array& array_;
  const std::string& path_;
  const ScannedFile& file_;
  const bool judge_space_;
  FileInspection found_;
};

FileInspection Inspector::run() {
  inspect_sidecar();
  if (!file_.status.is_ok()) return std::move(found_);
  inspect_extents();
  const auto members = chunks_by_member(file_.image, array_.member_count());
  for (const MemberIndex m : array_.members()) {
    if (members[m].empty()) continue;
    if (array_.member(m).present) {
      inspect_object(m, members[m]);
    } else {
      found_.damaged_members.set(m.value());
      report_lost(m, members[m], "missing-member", "it is missing");
    }
  }
  std::sort(found_.lost_chunks.begin(), found_.lost_chunks.end());
  found_.lost_chunks.erase(std::unique(found_.lost_chunks.begin(), found_.lost_chunks.end()), found_.lost_chunks.end());
  return std::move(found_);
}

CheckError& Inspector::report(const char* kind, std::string detail) {
  CheckError& error = found_.errors.emplace_back();
  error.path = path_;
  error.kind = kind;
  error.detail = std::move(detail);
  return error;
}

void Inspector::inspect_sidecar() {
  if (!file_.status.is_ok()) {
    const StatusCode code = file_.status.code();
    const bool readable = code == StatusCode::kCorruption || code == StatusCode::kUnsupported;
    if (file_.is_foreign)
      report("foreign-sidecar", file_.status.message());
    else if (file_.is_stray)
      report("foreign",
             "this is no index of a file; move it elsewhere. (If there was a checkpoint of this name, all of its index "
             "was overwritten. All objects are kept as long as this lies here.)");
    else
      report(readable ? "sidecar" : "unreadable",
             fmt::format("{}; {}", file_.status.message(),
                         file_.claimed_id.has_value() ? "the objects it may name are kept"
                                                      : "it does not tell whose index it is, so all objects are kept"));
    return;
  }
  if (file_.findings.torn_tail)
    report("torn-tail", fmt::format("{} of an unfinished commit behind offset {} of the sidecar",
                                    format_count(file_.findings.torn_bytes, "byte"), file_.image.end));
}

void Inspector::inspect_extents() {
  const StripeMap stripes = array_.stripes();
  const ChunkIndex end = stripes.chunks_end(FileOffset(file_.image.size));
  file_.image.extents.for_each(end, [&](ChunkIndex chunk, const Extent& extent) {
    CheckError& error =
        report("extent", fmt::format("an extent behind the end of the file, which is {} bytes long", file_.image.size));
    error.chunk = static_cast<int64_t>(chunk.value());
    if (extent.is_here()) {
      error.member = extent.member.value();
      error.object_offset = static_cast<int64_t>(place_of(extent, stripes.chunk_size).begin.value());
    }
    return found_.errors.size() < kErrorsOfOneFileMax;
  });
}

void Inspector::inspect_object(MemberIndex member, const std::vector<PlacedChunk>& chunks) {
  check_overlaps(member, chunks);
  const FileImage& image = file_.image;
  const Result<HandleCache::Pin> directory = array_.object_directory(member, image.file_id);
  const Result<struct stat> attributes =
      directory.is_ok() ? storage_.stat_at(directory->get(), Array::object_name(image.file_id, image.generation))
                        : Result<struct stat>(directory.status());
  if (!attributes.is_ok()) {
    found_.damaged_members.set(member.value());
    if (attributes.status().code() == StatusCode::kNotFound)
      report_lost(member, chunks, "missing-object", "the object does not exist");
    else
      report_lost(member, chunks, "unreadable", attributes.status().message());
    return;
  }
  check_length(member, chunks, ObjectOffset(static_cast<uint64_t>(attributes->st_size)));
  if (!judge_space_) return;
  const Result<bool> leftovers = has_leftovers_on(storage_, array_, image, member, chunks);
  if (!leftovers.is_ok())
    report_lost(member, {}, "unreadable", leftovers.status().message());
  else if (*leftovers)
    found_.members_with_leftovers.push_back(member);
}

void Inspector::check_overlaps(MemberIndex member, const std::vector<PlacedChunk>& chunks) {
  for (size_t i = 1; i < chunks.size() && found_.errors.size() < kErrorsOfOneFileMax; ++i) {
    if (chunks[i].extent.slot != chunks[i - 1].extent.slot) continue;
    CheckError& error =
        report("overlap", fmt::format("chunks {} and {} are both said to lie in slot {} of {}", chunks[i - 1].chunk,
                                      chunks[i].chunk, chunks[i].extent.slot,
                                      object_path(array_, member, file_.image.file_id, file_.image.generation)));
    error.chunk = static_cast<int64_t>(chunks[i].chunk.value());
    error.member = member.value();
    error.object_offset = static_cast<int64_t>(place_of(chunks[i].extent, array_.stripes().chunk_size).begin.value());
  }
}

void Inspector::check_length(MemberIndex member, const std::vector<PlacedChunk>& chunks, ObjectOffset end) {
  const uint32_t chunk_size = array_.stripes().chunk_size;
  std::vector<PlacedChunk> lost;
  for (const PlacedChunk& placed : chunks)
    if (place_of(placed.extent, chunk_size).begin + placed.extent.stored_length > end) lost.push_back(placed);
  if (lost.empty()) return;
  found_.damaged_members.set(member.value());
  report_lost(member, lost, "short-object", fmt::format("the object is only {} bytes long", end));
}

void Inspector::report_lost(MemberIndex member, const std::vector<PlacedChunk>& lost, const char* kind,
                            const std::string& why) {
  const std::string object = array_.member(member).present
                                 ? object_path(array_, member, file_.image.file_id, file_.image.generation)
                                 : fmt::format("member {}", member);
  CheckError& error =
      report(kind, fmt::format("{}: {}{}", object, why,
                               lost.empty() ? ""
                                            : fmt::format("; {} {} {}", format_count(lost.size(), "chunk"),
                                                          one_or_many(lost.size(), "is", "are"),
                                                          array_.member(member).present ? "lost" : "there")));
  error.member = member.value();
  if (lost.empty()) return;
  error.chunk = static_cast<int64_t>(lost.front().chunk.value());
  error.object_offset = static_cast<int64_t>(place_of(lost.front().extent, array_.stripes().chunk_size).begin.value());
  for (const PlacedChunk& placed : lost) found_.lost_chunks.push_back(placed.chunk);
}

}  // namespace

FileInspection inspect_file(Storage& storage, Array& array, const std::string& path, const ScannedFile& file,
                            bool judge_space) {
  return Inspector(storage, array, path, file, judge_space).run();
}

bool is_damage(const std::string& kind) {
  return kind != "torn-tail" && kind != "leftover-space" && kind != "orphan" && kind != "pending-commit";
}

std::string object_path(const Array& array, MemberIndex member, FileId file, Generation generation) {
  return fmt::format("{}/objects/{}", array.member(member).path, Array::object_path(file, generation));
}

}  // namespace fpfs
