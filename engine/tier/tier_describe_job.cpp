// The steps of a copy that sends no content. Of a file whose content the store has, at this path or at another one:
//
//   1. manifest  the one that the store has is read: it says what is known of the content
//   2. content   copied by the store, when the file was at another path
//   3. manifest  stored at this path, with the file's attributes
//   4. note
//
// The copy at the other path is removed behind that, by a job of its own (tier_remove_job.cpp). When anything is not as
// it should be, the content is sent.
//
// Of what is no file the manifest is all; it is stored when the store has another one.
#include <utility>

#include "engine/codec/hash.h"
#include "engine/tier/tier_copier_impl.h"
#include "engine/tier/tier_reader.h"

namespace fpfs {
namespace {

bool is_same_node(const TierManifest& a, const TierManifest& b) {
  return a.array_id == b.array_id && a.file_id == b.file_id && a.generation == b.generation;
}

bool is_same_commit(const TierManifest& a, const TierManifest& b) {
  return is_same_node(a, b) && a.sequence == b.sequence;
}

}  // namespace

void TierCopier::Impl::begin_description(const std::shared_ptr<Job>& job) {
  read_manifest(job, manifest_key(job->from), [self = shared_from_this(), job](const Result<StoredManifest>& stored) {
    if (job->opened == nullptr) return self->describe_node(job, stored);
    if (!stored.is_ok() || !is_of_same(*job, stored.value().manifest)) return self->begin_anew(job);
    self->describe_file(job, stored.value());
  });
}

// --- files -----------------------------------------------------------------------------------------------------------

// Whether the copy has the content that the file has now.
bool TierCopier::Impl::is_of_same(const Job& job, const TierManifest& stored) {
  const bool is_this = job.from_tag == 0 || TierNote::tag_of(stored.content_tag) == job.from_tag;
  if (!stored.is_file() || stored.path != job.from || stored.size != job.manifest.size || !is_this) return false;
  const bool is_noted = job.is_noted && job.from_tag != 0;
  return is_noted || is_same_commit(stored, job.manifest) || has_same_content(job, stored);
}

// Chunk by chunk, by what the record knows them by.
bool TierCopier::Impl::has_same_content(const Job& job, const TierManifest& stored) {
  const TierManifest& now = job.manifest;
  const bool can_tell = job.has_away && !job.is_cut && stored.chunk_size == now.chunk_size &&
                        stored.checksums.size() == now.stored_checksums.size();
  if (!can_tell) return false;
  const bool is_same_file = is_same_node(stored, now) && stored.stored_checksums.size() == now.stored_checksums.size();
  const std::vector<std::byte> zeros(now.chunk_size);
  const uint64_t zeros_checksum = hash_bytes(zeros);
  for (ChunkIndex chunk(0); chunk.value() < now.stored_checksums.size(); ++chunk) {
    const uint64_t mark = now.stored_checksums[chunk.value()], content = stored.checksums[chunk.value()];
    const size_t length = chunk_bytes_of(stored, chunk);
    const bool is_hole =
        mark == 0 && content == (length == zeros.size() ? zeros_checksum : hash_bytes(std::span(zeros).first(length)));
    const bool is_stored = mark != 0 && is_same_file && stored.stored_checksums[chunk.value()] == mark;
    // Only what is away is known by the checksum of its content.
    if (!is_hole && !is_stored && (mark == 0 || mark != content)) return false;
  }
  return true;
}

void TierCopier::Impl::describe_file(const std::shared_ptr<Job>& job, StoredManifest stored) {
  const std::string path = job->file.path, tag = stored.manifest.content_tag;
  if (job->from == path)
    return ask_head(
        job, path, [self = shared_from_this(), job, stored = std::move(stored)](const Result<ObjectInfo>& found) {
          const bool is_there = found.is_ok() && found.value().tag == stored.manifest.content_tag &&
                                found.value().size == stored.manifest.size;
          is_there ? self->take_over(job, stored, {found.value().tag, job->from_verified}) : self->begin_anew(job);
        });
  ask<StoredObject>(
      job,
      [this, job, path, tag](Asked<StoredObject> done) {
        objects_.copy(job->from, tag, path, mark_of_copy(), std::move(done));
      },
      [self = shared_from_this(), job, stored = std::move(stored)](const Result<StoredObject>& copied) {
        if (!copied.is_ok()) return self->begin_anew(job);
        self->take_over(job, stored, {copied.value().tag, copied.value().verified && job->from_verified});
      });
}

void TierCopier::Impl::take_over(const std::shared_ptr<Job>& job, StoredManifest stored, const StoredObject& content) {
  job->note.content_tag = TierNote::tag_of(content.tag);
  job->note.verified = content.verified;
  if (job->is_theirs && job->from == job->file.path && stored.manifest.array_id != store_.array().id())
    return edit_theirs(job, std::move(stored));
  job->is_unchanged = job->from == job->file.path && is_same_commit(stored.manifest, job->manifest) &&
                      attributes_hash(stored.manifest) == job->note.attributes;
  if (job->is_unchanged) {
    job->note.manifest_tag = stored.tag;
    return environment_.executor().post([self = shared_from_this(), job] { self->write_note(job); });
  }
  job->manifest.checksums = std::move(stored.manifest.checksums);
  job->manifest.content_tag = content.tag;
  environment_.workers().post([self = shared_from_this(), job] { self->store_manifest(job); });
}

// The attributes are changed in the manifest of the array that has the content, which remains that one's.
void TierCopier::Impl::edit_theirs(const std::shared_ptr<Job>& job, StoredManifest stored) {
  job->note.is_others = true;
  job->is_unchanged = attributes_hash(stored.manifest) == job->note.attributes;
  if (job->is_unchanged) {
    job->note.manifest_tag = stored.tag;
    return environment_.executor().post([self = shared_from_this(), job] { self->write_note(job); });
  }
  job->replaced = replaced_by_next(stored);
  take_attributes(stored.manifest, job->manifest);
  job->manifest = std::move(stored.manifest);
  environment_.workers().post([self = shared_from_this(), job] { self->store_manifest(job); });
}

// --- directories, symbolic links, devices ----------------------------------------------------------------------------

void TierCopier::Impl::describe_node(const std::shared_ptr<Job>& job, const Result<StoredManifest>& stored) {
  const bool is_same = options_.shares ? stored.is_ok() && !stored.value().manifest.is_removed() &&
                                             stored.value().manifest.path == job->manifest.path &&
                                             attributes_of(stored.value().manifest) == attributes_of(job->manifest)
                                       : stored.is_ok() && stored.value().manifest == job->manifest;
  if (is_same && !job->file.is_missing) {
    job->note.manifest_tag = stored.value().tag;
    return environment_.executor().post([self = shared_from_this(), job] {
      self->note_node(*job);
      self->end_job(job, Ending::kIsCopied);
    });
  }
  const bool replaces_file = (stored.is_ok() && stored.value().manifest.is_file()) || job->file.is_missing;
  if (!follows() || job->file.path.ends_with('/') || !replaces_file) return store_manifest(job);
  environment_.executor().post([self = shared_from_this(), job] { self->replace_file(job); });
}

// The file that was here is gone for good; its content goes when no manifest names it any more.
void TierCopier::Impl::replace_file(const std::shared_ptr<Job>& job) {
  const Status synced = sync_way_to(job->file.path);
  if (!synced.is_ok()) return end_with(job, synced, false);
  const Result<Found> found = find(job->file.path);
  if (!found.is_ok() || !found.value().has_node() || found.value().is_file()) return end_job(job, Ending::kMoved);
  if (!may_replace(job->file.path, 0)) return end_job(job, Ending::kBlocked);
  job->removes_content = true;
  store_manifest(job);
}

}  // namespace fpfs
