// ArrayTier: the life of an array's store outside this machine, from mount to unmount. It finds out which store that
// is, makes sure of it, has committed files copied there (tier_copier.h), and tries again by itself when it is away.
// Whatever else uses the store of a mounted array gets it here.
//
// Which store. The one that an operator made the array's (set()), which the array remembers with its id
// (tier_binding.h). A mount may name another way to it (TierOptions::url), but not another store: the id must be the
// same. A store that is found to be another one, or used by other arrays, gets nothing; nor does one that a newer state
// of this array has copied to (tier_fence.h).
//
// Nothing local waits for it, but who asks to: what it does runs on a thread of its own, at low priority, as do the
// threads of the store; and while something is saved, copies are sent at TierOptions::rate_while_saving at most.
//
// Thread safety: all methods from any thread, with no lock of the engine held.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/store/store.h"
#include "engine/tier/tier_copier.h"
#include "engine/tier/tier_restore.h"
#include "engine/tier/tier_room.h"

namespace fpfs {

struct TierOptions {
  static constexpr const char* kNone = "none";

  std::string url;               // empty: as the array remembers; kNone: no store until set() or the next mount
  std::optional<bool> required;  // open() fails without it. By default a store that was named here is, no other one
  TierCopyOptions copy;
  uint64_t rate_while_saving = 64 * kMiB;            // bytes per second, 0: as otherwise
  std::chrono::milliseconds fence_interval{60'000};  // so often a new one, while copies are made (tier_fence.h)
  // For so long copies are made without a look at whose they are (tier_lease.h). Who restores an array that has not
  // ended waits for it, and half as long for what was on its way.
  std::chrono::milliseconds lease{10'000};
  TierKeep keep;  // what stays on the drives of what is copied
  // Other arrays copy to the same store, and what they have copied is shown here: so long what was found is not looked
  // for again. Nothing: no.
  std::optional<std::chrono::milliseconds> share;
  // So often it is looked for what may leave, while copies are made; less often where that takes long.
  std::chrono::milliseconds room_interval{2'000};
};

struct TierSet {
  std::string url;
  std::string host;        // of this machine, for people who look at the store
  std::string mounted_at;  // likewise; no place for copies
  bool share = false;      // also a store that other arrays copy to
  // Also where there are other files, or newer copies of this array's: they may be replaced.
  bool has_other_files = false;
  // What another array has copied there becomes this array's: its tree is made here (tier_restore.h), and that array
  // copies there no more.
  bool restores = false;
  std::string restored_array;  // that array's id; empty: the only one
};

struct TierStatus {
  enum class State : uint8_t {
    kNone,      // the array copies nowhere, or not in this mount
    kAway,      // it cannot be reached, or refuses us; last_error says why, and it is tried again
    kScanning,  // looking for what is to be copied
    kCopying,
    kCurrent,    // what is known to be committed is copied
    kReading,    // the mount is read-only: copies are only read
    kRestoring,  // names are being made of what another array has copied
  };
  State state = State::kNone;
  std::string store;     // how messages name it; empty: none
  std::string store_id;  // as far as known
  bool required = false;
  bool is_paced = false;  // something is being saved
  // False: nobody has looked for what waits, as copying has not begun, or was ended by the store; then nothing of
  // `copies` says it, and what was committed in lag_seconds waits at the least.
  bool is_waiting_known = true;
  uint64_t lag_seconds = 0;  // since the oldest commit that waits
  double eta_seconds = -1;   // at the present rate; -1: not known
  TierCopyOptions limits;
  uint64_t rate_while_saving = 0;
  TierCopyStatus copies;       // last_error also of what keeps it from being reached
  TierRestoreStatus restored;  // since the mount
  TierKeep keep;
  uint64_t files_left = 0, bytes_left = 0;      // content that has left the drives, since the mount
  uint64_t files_pinned = 0, bytes_pinned = 0;  // when it was looked last what may leave; 0 with TierKeep::Kind::kAll
};
const char* to_string(TierStatus::State state);

enum class TierFileState : uint8_t { kLocal, kCopying, kCopied };
const char* to_string(TierFileState state);

class ArrayTier {
 public:
  using Done = std::function<void(const Status&)>;

  // `outside`: the system calls for a directory; none of those who watch the members, as a network filesystem may hang.
  // Environment, store and storage are there until stop(). Before any file of the store is opened.
  ArrayTier(Environment& environment, Store& store, Storage& outside, TierOptions options);
  // stop() was called, and said true.
  ~ArrayTier();
  ArrayTier(const ArrayTier&) = delete;
  ArrayTier& operator=(const ArrayTier&) = delete;

  // Called with the inode of each file whose content is the same as before, elsewhere: less or more of the drives is
  // taken. On the threads that commit, with a lock: it must not block, nor call this. Null: nobody, once this returns.
  void when_moved(std::function<void(uint64_t inode)> listener);
  // Called for each name that appears behind the back of whoever serves the names, as RestoredTree::Named; on the
  // threads that make them, one at a time. Null: nobody, once this returns.
  void when_named(RestoredTree::Named listener);
  // Begins. With a store that is required this waits until it is known to be the right one (kFirstAnswerMax), and fails
  // when it is not, or does not answer; else it returns at once. Of an array that is read-only nothing is copied, and
  // the store is not required unless it is said to be; what its members do not give is read from there all the same.
  Status open();

  // Makes a store the array's, durably, and begins to copy to it; what the array copied to before stays as it is.
  // Errors are those of parse_tier_url(), make_object_store() and init_tier(), kBusy: content of this array lies in
  // the store of before only, and kWrongStore: what it has copied there may be newer; then nothing has changed. With
  // TierSet::restores it ends when the whole tree is there; a failure of that is tried again, and at the next mount.
  void set(const TierSet& set, const Done& done);
  // The array copies nowhere any more, durably. kNotFound: it did not. kBusy: content lies there only; then nothing has
  // changed. Another failure: the store still says that it does.
  void leave(const Done& done);

  // TierCopier::look(): what others had copied there TierOptions::share ago, or later. While there is no store that is
  // known to be the right one there is nothing to wait for.
  bool look(const std::string& path, std::function<void()> done);
  bool shows_others() const;  // TierCopier::shows_others()

  // TierCopier::wait_for(), wait_for_commit() and wait_for_all(). While the store is away they wait. kNotFound: there
  // is no store. kWrongStore: it was the right one, and refuses us since.
  void wait_for(const std::string& path, const Done& done);
  void wait_for_commit(uint64_t inode, uint64_t sequence, const Done& done);
  void wait_for_all(const Done& done);
  // Somebody waits for content that is fetched, until he is answered: copies that nobody waits for begin behind that.
  void fetch_begins();
  void fetch_ends();
  // Of an open file whose attributes are these: whether what is seen of it is copied.
  TierFileState state_of(Handle node, const File& file, const struct stat& attributes) const;
  TierStatus status() const;
  // Some file, or directory, is pinned since, or no longer (Store::kPinAttribute): what may leave is looked for again.
  void pins_changed();
  // Other than before: something has reached the store since.
  uint64_t progress() const;

  // What an end at this moment leaves to the next mount, in one line; empty: nothing.
  std::string left_over() const;
  // Ends. Who waits gets kCancelled. False: the store, or a drive, has not let go within `patience`. Then neither this
  // nor what it uses may be destroyed: leave the process. It may be called again.
  bool stop(std::chrono::milliseconds patience);

  static constexpr std::chrono::seconds kFirstAnswerMax{30};

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace fpfs
