// fsck -y moves the sidecar of a damaged file from tree/ to lost+found/ of the metadata directory, next to a text that
// says what was wrong and which bytes survive. Its objects stay: with the sidecar moved back, what survives can be
// read.
//
//   lost+found/<inode, 16 hex digits>-<name>.sidecar
//   lost+found/<inode, 16 hex digits>-<name>.txt
#pragma once

#include <string>
#include <vector>

#include "engine/check/check.h"
#include "engine/check/scan.h"

namespace fpfs {

constexpr const char* kLostAndFound = "lost+found";

bool is_sidecar_set_aside(const std::string& name);

// Moves the file and writes the text. `errors` are those of this file, `lost_chunks` (ascending) those of its chunks
// that were found not to be readable, all of them having been read. Durable on return.
Result<FileSetAside> set_aside(Storage& storage, const Array& array, const FileEntry& entry, const ScannedFile& file,
                               const std::vector<CheckError>& errors, const std::vector<ChunkIndex>& lost_chunks);

// What survives when `lost_chunks` are gone.
std::vector<FileSetAside::Range> surviving_ranges(uint64_t size, uint32_t chunk_size,
                                                  const std::vector<ChunkIndex>& lost_chunks);

}  // namespace fpfs
