// TierManifest: what a store outside this machine is told of one file besides its content: an object of its own, under
// manifest_key() of the path. docs/format.md gives every byte.
//
// A file's content is an object of plain bytes under the file's path. It is stored first, its manifest behind it. A
// content object counts only with a manifest that names its size and its tag: whoever finds another one, or none, finds
// no copy there. (While a copy is replaced by a newer one, its content is new and its manifest is old for a moment.)
//
// Anything else that has a name (a directory, a symbolic link, a device node) has a manifest only. A file with several
// names is copied under each of them: manifests with the same file id are names of one file.
//
// Chunk checksums are those of the bytes that the store has: XXH3 without a seed, over the plain content of each
// chunk. How the array stores a chunk, compressed or not, does not matter for them. Beside them stands, for each chunk,
// the checksum of what the array had stored: by that its record knows the chunk. So a chunk can be told to be the one
// that was committed, whatever became of other chunks since.
//
// The manifest of a small file has its content, too: who restores the file needs one request for both, and no commit to
// bring the content behind the name.
//
// Where arrays share a store (TierCopyOptions::shares), a manifest also says which versions of other arrays its own has
// taken the place of, so that these can tell a newer version from one that was made without knowing theirs. And of what
// an array removes though another one has made it, a manifest stays, without content, that says so: until that other
// array has seen it (tier_share_job.cpp). Who changes the attributes of what another one has made changes them in that
// one's manifest, which remains that array's: it has the content.
//
// Thread safety: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/index/superblock.h"

namespace fpfs {

struct TierManifest {
  static constexpr size_t kPathBytesMax = 1024;
  static constexpr size_t kTagBytesMax = 1024;
  static constexpr size_t kTargetBytesMax = 4095;         // of a symbolic link: PATH_MAX without its end
  static constexpr size_t kXattrNameBytesMax = 255;       // XATTR_NAME_MAX
  static constexpr size_t kXattrValueBytesMax = 65536;    // XATTR_SIZE_MAX
  static constexpr size_t kXattrsBytesMax = 1024 * 1024;  // of all, names and values
  static constexpr size_t kReplacedMax = 256;
  static constexpr size_t kContentMax = 32 * 1024;  // bytes; less than any chunk has

  Uuid array_id{};
  std::string path;   // below the root of the array, without a '/' at its beginning
  uint32_t mode = 0;  // as in stat(2), the type of the node included
  uint32_t uid = 0, gid = 0;
  int64_t mtime_seconds = 0;
  uint32_t mtime_nanoseconds = 0;
  uint64_t device = 0;  // of a device node
  std::string target;   // of a symbolic link
  std::map<std::string, std::string> xattrs;

  // Of a regular file; empty of anything else.
  FileId file_id;                   // 0: nothing was ever written to it
  Generation generation;            //
  uint64_t sequence = 0;            // the commit that the copy holds
  uint64_t size = 0;                // bytes
  uint32_t chunk_size = 0;          // 0 of an empty file
  std::vector<uint64_t> checksums;  // of every chunk, the last one as far as the content goes
  // ChunkSource::mark_of() every chunk's extent; 0: it had none. Empty: not told.
  std::vector<uint64_t> stored_checksums;
  std::string content_tag;  // of the object that has the content
  // The same content once more, `size` bytes; empty: that object only has it.
  std::vector<std::byte> content;

  // Of a store that is shared. By array_key(): TierNote::tag_of() the last manifest of that array here that this one,
  // or one that it has replaced, took the place of. Its own array is among them when another one has changed the
  // attributes: then that is the manifest before. By edit_key(): the last one that others had so changed.
  std::map<uint64_t, uint64_t> replaced;
  // array_key() of whose version was removed: then nothing is here. 0: it was not.
  uint64_t removed_of = 0;
  bool operator==(const TierManifest&) const = default;

  bool is_file() const;
  bool is_removed() const { return removed_of != 0; }
  // The content is elsewhere, in chunks.
  bool has_chunks() const { return size > 0 && content.empty(); }
  // Whether `content` is what the checksums are of; true when there is none.
  bool is_content_right() const;
  // By another array than the one that has the content: its attributes.
  bool is_edited() const;
};

// What `replaced` and `removed_of` know an array by. Never 0.
uint64_t array_key(const Uuid& array_id);
// What `replaced` knows its version by whose attributes others have changed.
constexpr uint64_t edit_key(uint64_t array) {
  return ~array;
}

// kTooLarge, with what to do: the content, which is not in the manifest, comes in chunks of another size than this.
Status check_chunk_size(const TierManifest& manifest, uint32_t chunk_size);
// Owner, mode, times, extended attributes, device and target, and nothing else.
void take_attributes(TierManifest& manifest, const TierManifest& from);
uint64_t attributes_hash(const TierManifest& manifest);
// kInvalidArgument says which field cannot be written, or contradicts another.
Status validate_manifest(const TierManifest& manifest);
// The manifest is valid.
std::vector<std::byte> encode_manifest(const TierManifest& manifest);
// kCorruption: no manifest, a damaged one, or a field out of range. kUnsupported: of a later version. Memory goes with
// the length of `bytes`, whatever they say. What it returns is valid, and encodes to the same bytes.
Result<TierManifest> decode_manifest(std::span<const std::byte> bytes);

// --- where things are ------------------------------------------------------------------------------------------------

// The component of a key below which manifests are. No file whose path has it is copied.
constexpr std::string_view kTierReserved = ".fastpersistfs";
// ".fastpersistfs/" and the path. That of a directory, whose path ends with a '/' here, lies below that, under
// kTierDirectory: some stores cannot have an object where others have theirs in it.
std::string manifest_key(std::string_view path);
constexpr std::string_view kTierDirectory = ".fastpersistfs-directory";
// The path that a key is the manifest of, of a directory with its '/'; empty: of none.
std::string_view path_of_manifest(std::string_view key);
// Whether a component of the path is kTierReserved, or begins with that and a '-', as what stores keep for themselves.
bool is_reserved(std::string_view path);

}  // namespace fpfs
