// ChunkSource: where the bytes of a chunk are that its member does not give any more, or that lies on no member
// (Codec::kAway): a copy outside of the array. Whoever keeps copies implements it (engine/tier/tier_chunk_source.h) and
// gives it to Store::set_chunk_source().
//
// Thread safety: all methods from any thread, without locks. `done` is called once, from any thread, also before the
// method returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/index/extent_table.h"

namespace fpfs {

class ChunkSource {
 public:
  // Extended attribute of the sidecar of a file whose content may lie in a copy only: the path of that copy, below the
  // root. Whoever sends content away, or moves the copy, sets it. None, or empty: the copy, if there is one, is where
  // the file is.
  static constexpr const char* kPathAttribute = "user.fastpersistfs.tier-path";

  // The same of a file whose content is as another array has copied it, wherever its chunks lie: with a path attribute,
  // and this one beside it. The first commit that changes the content removes it (Store::has_others()).
  static constexpr const char* kOthersAttribute = "user.fastpersistfs.tier-others";

  struct Wanted {
    std::string path;  // of the copy, below the root, without '/' at its beginning
    FileId file_id;
    Generation generation;
    uint64_t sequence = 0;  // of its last commit
    ChunkIndex chunk;
    Extent extent;  // what the record says of it
  };
  struct Found {
    // What the array had stored for this chunk when the copy was made, as mark_of(); 0: that is not known.
    uint64_t stored_mark = 0;
  };
  // What a record knows the bytes of a chunk by that it shows: the checksum, and how many of them it shows, when that
  // is not all. 0: of no extent.
  static uint64_t mark_of(const Extent& extent) {
    constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
    const bool is_cut = extent.visible_length != extent.raw_length;
    return extent.exists() ? extent.checksum ^ (is_cut ? (extent.visible_length + uint64_t{1}) * kOdd : 0) : 0;
  }
  using Done = std::function<void(const Result<Found>&)>;

  virtual ~ChunkSource() = default;
  // Reads the chunk into `into`, a whole chunk, which belongs to the source until `done`: the content as it was copied,
  // checked since it arrived, of which the first extent.visible_length bytes are wanted. Of a chunk that is away: the
  // bytes that are there now, unchecked, as the record has their checksum. Whether it is the content that the record
  // speaks of is for the caller to judge; the source may refuse what it knows not to be.
  //   kNotFound     there is no copy of this chunk, as it is now
  //   kCorruption   there is one, and it is damaged
  //   all others    the store does not give it, now
  virtual void fetch(const Wanted& wanted, std::span<std::byte> into, Done done) = 0;
  // The same of chunks that are away and lie behind each other, `first` and those behind it: all of `into`, by one
  // request. A failure says nothing of a single one of them: whoever gets it asks for each by itself.
  virtual void fetch_run(const Wanted& first, uint64_t offset, std::span<std::byte> into, Done done) {
    static_cast<void>(first), static_cast<void>(offset), static_cast<void>(into);
    const Done refused = std::move(done);
    refused(Status::error(StatusCode::kUnsupported, "chunks are fetched one by one"));
  }
};

}  // namespace fpfs
