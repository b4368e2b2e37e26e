// TierBinding: which store outside this machine an array copies to, as the array itself remembers it: the file `tier`
// beside tree/ (docs/format.md). Written when an operator makes a store the array's, never at a mount that finds
// another one.
//
// Thread safety: functions; they block for the drive.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/array/array.h"
#include "engine/base/status.h"
#include "engine/io/storage.h"

namespace fpfs {

struct TierBinding {
  static constexpr size_t kBytesMax = 8192;

  std::string store_id;                  // tier_marker.h
  std::string url;                       // tier_url.h; has no secrets
  std::vector<std::string> fences = {};  // that the store may have, the newest last (tier_fence.h)
  bool is_away = false;                  // content may lie in the store only (File::send_away())
  bool shares = false;                   // other arrays copy there, too, and are looked at (TierCopyOptions::shares)
  std::string restores = {};             // the array whose copies are to become this one's files; empty: none, any more
  std::vector<std::string> restored = {};  // those whose copies became this one's
  bool has_left = false;                   // the array copies there no more, and the store could not be told
  bool operator==(const TierBinding&) const = default;
};

// One line of JSON.
std::string encode_binding(const TierBinding& binding, const Uuid& array_id);
// kCorruption, kUnsupported: it is none of this array.
Result<TierBinding> decode_binding(std::string_view text, const Uuid& array_id);

// Nothing: the array copies nowhere, or TierBinding::has_left, unless that is asked for. kCorruption, kUnsupported: the
// file is there, and does not say where to.
Result<std::optional<TierBinding>> load_binding(Storage& storage, const Array& array, bool also_left = false);
// Durable on return; after a crash the array remembers what it did before, or this. Nothing: no store any more.
Status save_binding(Storage& storage, const Array& array, const std::optional<TierBinding>& binding);

}  // namespace fpfs
