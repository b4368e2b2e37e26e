// The repairs that are safe without asking: what crashes leave behind. Shared by fsck and by recovery; the order in
// which they are safe is told in recover.cpp. All of them may be repeated.
#pragma once

#include "engine/check/object_space.h"
#include "engine/check/scan.h"

namespace fpfs {

// Makes durable what the tree and the members show: later repairs free what nothing shown needs.
Status sync_everything(Storage& storage, const Array& array);

// Cuts a sidecar behind its last whole record. Durable on return.
Status cut_torn_tail(Storage& storage, const FileEntry& entry, const ScannedFile& file);

// Calls `visit` for every sidecar under lost+found/ (see set_aside.h); of its path the name is there.
Status walk_files_set_aside(Storage& storage, const Array& array,
                            const std::function<void(const FileEntry&, const ScannedFile&)>& visit);

// Adds what the sidecars under lost+found/ name or may have named (see set_aside.h): their files' objects of every
// generation.
Status add_files_set_aside(Storage& storage, const Array& array, References& references);

// An object that no sidecar names.
bool is_orphan(const References& references, const ObjectEntry& object);
// An object of a file's current generation on a member where no extent of the file lies.
bool is_unused(const References& references, const ObjectEntry& object);

// Returns the bytes given back.
Result<uint64_t> remove_object(Storage& storage, const ObjectEntry& object);

// Whether the file's object on `member` holds more than `chunks` (the file's chunks there, of chunks_by_member) need.
Result<bool> has_leftovers_on(Storage& storage, Array& array, const FileImage& image, MemberIndex member,
                              const std::vector<PlacedChunk>& chunks);
// Gives back what the file's object on `member` holds beside `chunks`. Returns the bytes given back.
Result<uint64_t> free_leftovers_on(Storage& storage, Array& array, const FileImage& image, MemberIndex member,
                                   const std::vector<PlacedChunk>& chunks);

}  // namespace fpfs
