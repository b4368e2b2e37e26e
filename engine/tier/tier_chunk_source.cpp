#include "engine/tier/tier_chunk_source.h"

#include <utility>

#include <fmt/format.h>

namespace fpfs {
namespace {

// One fetch. The manifest that is kept may be of an older copy: what it does not help with is asked for anew, once.
struct FetchedChunk : std::enable_shared_from_this<FetchedChunk> {
  std::shared_ptr<TierReader> reader;
  Uuid array_id{};
  ChunkSource::Wanted wanted;
  std::span<std::byte> into;
  ChunkSource::Done done;

  void find(TierReader::Which which);
  Status judge(const TierManifest& manifest) const;
  uint64_t stored_mark(const TierManifest& manifest) const;
  void read(const TierReader::Manifest& manifest, TierReader::Which which);
  void end(TierReader::Which which, const Status& failure);
};

void FetchedChunk::find(TierReader::Which which) {
  reader->find(wanted.path, which, [self = shared_from_this(), which](const Result<TierReader::Manifest>& found) {
    if (!found.is_ok()) return self->end(which, found.status());
    const Status usable = self->judge(**found);
    usable.is_ok() ? self->read(*found, which) : self->end(which, usable);
  });
}

// Whether the chunk of this copy can be told to be the one that the record speaks of.
Status FetchedChunk::judge(const TierManifest& manifest) const {
  const auto refuse = [](std::string why) { return Status::error(StatusCode::kNotFound, std::move(why)); };
  const Extent& extent = wanted.extent;
  const uint64_t length = chunk_bytes_of(manifest, wanted.chunk);
  if (length < extent.visible_length || length > into.size()) return refuse("the copy is shorter");
  if (manifest.array_id != array_id || manifest.file_id != wanted.file_id || manifest.generation != wanted.generation)
    return refuse("the copy at its path is of another content");
  const bool is_hashed_as_it_is = extent.codec == Codec::kRaw && extent.visible_length == extent.raw_length;
  if (is_hashed_as_it_is) return Status::ok();
  // By what was stored then. Of a later commit a part of the chunk may be cut off.
  const uint64_t mark = stored_mark(manifest);
  const bool is_same = mark != 0 && manifest.sequence <= wanted.sequence &&
                       (mark == ChunkSource::mark_of(extent) || mark == extent.checksum);
  if (is_same) return Status::ok();
  return refuse(fmt::format("the copy is of commit {}, in which the chunk was another", manifest.sequence));
}

uint64_t FetchedChunk::stored_mark(const TierManifest& manifest) const {
  return manifest.stored_checksums.empty() ? 0 : manifest.stored_checksums[wanted.chunk.value()];
}

void FetchedChunk::read(const TierReader::Manifest& manifest, TierReader::Which which) {
  reader->read(manifest, wanted.chunk, into.first(chunk_bytes_of(*manifest, wanted.chunk)),
               [self = shared_from_this(), manifest, which](const Status& status) {
                 if (!status.is_ok()) return self->end(which, status);
                 std::exchange(self->done, nullptr)(ChunkSource::Found{self->stored_mark(*manifest)});
               });
}

void FetchedChunk::end(TierReader::Which which, const Status& failure) {
  if (failure.code() == StatusCode::kNotFound && which == TierReader::Which::kKept)
    return find(TierReader::Which::kNewest);
  std::exchange(done, nullptr)(failure);
}

}  // namespace

void TierChunkSource::fetch(const Wanted& wanted, std::span<std::byte> into, Done done) {
  if (wanted.extent.is_away())
    return fetch_run(wanted, wanted.chunk.value() * into.size(), into.first(wanted.extent.raw_length), std::move(done));
  const auto chunk = std::make_shared<FetchedChunk>();
  chunk->reader = reader_;
  chunk->array_id = array_id_;
  chunk->wanted = wanted;
  chunk->into = into;
  chunk->done = std::move(done);
  chunk->find(TierReader::Which::kKept);
}

void TierChunkSource::fetch_run(const Wanted& first, uint64_t offset, std::span<std::byte> into, Done done) {
  reader_->read_bytes(first.path, offset, into, [done = std::move(done)](const Status& status) {
    done(status.is_ok() ? Result<Found>(Found{}) : Result<Found>(status));
  });
}

}  // namespace fpfs
