// Which store it is, and the way to it: connecting, and fpfs tier set.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <iterator>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/base/log.h"
#include "engine/base/ranges.h"
#include "engine/tier/array_tier_impl.h"
#include "engine/tier/tier_fence.h"
#include "engine/tier/tier_manifest.h"
#include "engine/tier/tier_marker.h"
#include "engine/tier/tier_url.h"

namespace fpfs {
namespace {

using std::chrono::milliseconds;

// Whoever waits for an answer of a store is told what is wrong after this.
constexpr unsigned kAnswerSeconds = 10;

}  // namespace

ObjectStoreOptions ArrayTier::Impl::quick_answers() {
  ObjectStoreOptions options;
  options.deadline_s_max = kAnswerSeconds;
  return options;
}

std::string ArrayTier::Impl::place_of(const std::string& url) {
  const Result<TierUrl> parsed = parse_tier_url(url);
  return parsed.is_ok() ? describe(*parsed) : url;
}

void ArrayTier::Impl::has_tried(const Status& status) {
  if (!status.is_ok()) awaited_->not_found(status);
  save_lost();
  std::vector<Waiting> interrupted;
  {
    const MutexLock lock(mutex_);
    note_try(status);
    // One that is away is waited for.
    const bool waits_on = !status.is_ok() && status.code() != StatusCode::kWrongStore;
    if (waits_on) std::ranges::move(interrupted_, std::back_inserter(waiting_));
    if (waits_on) interrupted_.clear();
    interrupted.swap(interrupted_);
  }
  for (const Waiting& waits : interrupted) status.is_ok() ? when_connected(waits.ask, waits.done) : waits.done(status);
}

void ArrayTier::Impl::note_try(const Status& status) {
  was_tried_ = true;
  const bool is_new = !status.is_ok() && (failure_.is_ok() || failure_.message() != status.message());
  failure_ = status;
  attempts_ = status.is_ok() ? 0 : attempts_ + 1;
  if (!status.is_ok()) {
    ++failures_;
    failed_at_s_ = environment_.now().tv_sec;
    const int64_t first = std::max<int64_t>(1, options_.copy.pause_first.count());
    const int64_t limit = std::min(options_.copy.pause_max.count(), first << std::min(attempts_ - 1, 20U));
    next_try_ = Clock::now() + milliseconds(limit / 2 + static_cast<int64_t>(environment_.random_u64() %
                                                                             static_cast<uint64_t>(limit / 2 + 1)));
  }
  if (is_new && !stopping_ && !is_required())
    log(LogLevel::kWarning, "{}; nothing is {} until that is right, which is tried again and again", status.message(),
        is_read_only_ ? "read from there" : "copied");
  changed_.notify_all();
}

// Threads have the priority of those that start them: this one's is low, the executor's is that of requests. Waited for
// also while the mount ends: a thread that a filesystem does not let go of is to be known as caught (stop()).
Result<std::unique_ptr<ObjectStore>> ArrayTier::Impl::make_store(const std::string& url, Priority priority,
                                                                 const ObjectStoreOptions& options) {
  if (priority == Priority::kCopies) return make_object_store(outside_, url, options);
  const auto made = std::make_shared<std::promise<Result<std::unique_ptr<ObjectStore>>>>();
  environment_.executor().post(
      [&outside = outside_, url, options, made] { made->set_value(make_object_store(outside, url, options)); });
  return made->get_future().get();
}

// `store_id`: as it is known, empty if it is not; becomes what was found.
Result<std::unique_ptr<ObjectStore>> ArrayTier::Impl::reach(const std::string& url, Priority priority,
                                                            const ObjectStoreOptions& options, std::string& store_id) {
  FPFS_ASSIGN_OR_RETURN(std::unique_ptr<ObjectStore> objects, make_store(url, priority, options));
  const Result<TierIdentity> identity = ask<Result<TierIdentity>>([&](ObjectStore::Done<TierIdentity> done) {
    check_tier(*objects, to_string(store_.array().id()), store_id, std::move(done));
  });
  if (identity.is_ok()) {
    store_id = identity.value().store_id;
    return objects;
  }
  objects->close();
  const Status& failure = identity.status();
  if (failure.code() != StatusCode::kNotFound) return failure;
  return Status::error(StatusCode::kNotFound,
                       failure.message() + ": fpfs tier set MOUNTPOINT URL, on a mount with tier_required=no");
}

// A first time with little patience, so that somebody who waits learns what is wrong.
Status ArrayTier::Impl::connect() {
  FPFS_ASSIGN_OR_RETURN(const std::optional<TierBinding> remembered, load_binding(store_.storage(), store_.array()));
  TierBinding binding = remembered.value_or(TierBinding());
  std::string url;
  {
    const MutexLock lock(mutex_);
    url = url_;
  }
  if (!remembered.has_value()) binding.url = url;  // else it stays what fpfs tier set has said
  FPFS_ASSIGN_OR_RETURN(std::unique_ptr<ObjectStore> probe,
                        reach(url, Priority::kRequests, quick_answers(), binding.store_id));
  const Status fenced = is_read_only_ ? Status::ok() : raise_fence(*probe, binding);
  probe->close();
  FPFS_RETURN_IF_ERROR(fenced);
  probe = nullptr;
  return connect_to(url, binding);
}

// What fpfs tier set has just proven and made this array's is not proven again. Closes `objects`.
Status ArrayTier::Impl::connect_to_proven(ObjectStore& objects, const TierBinding& binding) {
  const Status fenced = ask<Status>([&](ObjectStore::DoneStatus done) {
    write_fence(objects, to_string(store_.array().id()), {binding.fences.back()}, std::move(done));
  });
  has_no_fence_ = false;
  objects.close();
  FPFS_RETURN_IF_ERROR(fenced);
  return connect_to(binding.url, binding);
}

Status ArrayTier::Impl::connect_to(const std::string& url, TierBinding binding) {
  auto session = std::make_unique<Session>();
  FPFS_ASSIGN_OR_RETURN(session->reads, reach(url, Priority::kRequests, {}, binding.store_id));
  const bool restores = !binding.restores.empty();
  if (!is_read_only_ && !restores) {
    FPFS_ASSIGN_OR_RETURN(session->copies, reach_for_copies(url, binding));
  }
  session->reader = TierReader::create(environment_, *session->reads);
  begin_session(std::move(session), binding);
  if (is_read_only_) return Status::ok();
  Status begun = restores ? restore() : Status::ok();
  if (begun.is_ok() && restores) begun = open_copies(url);
  if (begun.is_ok()) begun = begin_copying(restores);
  if (!begun.is_ok()) end_session();
  return begun;
}

// Behind a restore, which somebody waits for.
Status ArrayTier::Impl::open_copies(const std::string& url) {
  FPFS_ASSIGN_OR_RETURN(Copies copies, reach_for_copies(url, binding_));
  const MutexLock lock(mutex_);
  session_->copies = std::move(copies);
  return Status::ok();
}

Result<ArrayTier::Impl::Copies> ArrayTier::Impl::reach_for_copies(const std::string& url, TierBinding& binding) {
  ObjectStoreOptions looking = quick_answers();
  looking.connections_max = 1;
  looking.attempt_timeout = options_.lease / 2;
  FPFS_ASSIGN_OR_RETURN(std::unique_ptr<ObjectStore> looks, make_store(url, Priority::kRequests, looking));
  Copies copies;
  copies.lease = std::make_shared<TierLease>(std::move(looks), to_string(store_.array().id()), options_.lease,
                                             own_fences(binding));
  ObjectStoreOptions leased;
  leased.lease = copies.lease;
  FPFS_ASSIGN_OR_RETURN(copies.objects, reach(url, Priority::kCopies, leased, binding.store_id));
  return copies;
}

// What the store may have while this array's copies are its own.
std::vector<std::string> ArrayTier::Impl::own_fences(const TierBinding& binding) const {
  std::vector<std::string> own = binding.fences;
  if (has_no_fence_) own.emplace_back();
  return own;
}

// Sees to it that no newer state of the array has copied there, and that none of before will.
Status ArrayTier::Impl::raise_fence(ObjectStore& objects, TierBinding& binding, Clock::time_point until) {
  std::shared_ptr<TierLease> lease;
  {
    const MutexLock lock(mutex_);
    if (session_ != nullptr) lease = session_->copies.lease;
  }
  const std::string array = to_string(store_.array().id());
  const Result<TierFence> stored = ask<Result<TierFence>>(
      [&](ObjectStore::Done<TierFence> done) { read_fence(objects, array, std::move(done)); }, until);
  if (!stored.is_ok()) return stored.status();
  FPFS_RETURN_IF_ERROR(check_own(objects, binding, *stored, lease != nullptr));
  const std::string token = fmt::format("{:016x}", environment_.random_u64());
  binding.fences = known_fences(binding.fences, stored->token, token);
  const Status saved = save_binding(store_.storage(), store_.array(), binding);
  const bool is_full = saved.code() == StatusCode::kNoSpace;  // its files are copied all the same
  has_no_fence_ = is_full && stored->token.empty();
  if (lease != nullptr) lease->own(own_fences(binding));
  if (is_full) return Status::ok();
  FPFS_RETURN_IF_ERROR(saved);
  return ask<Status>([&](ObjectStore::DoneStatus done) { write_fence(objects, array, {token}, std::move(done)); },
                     until);
}

// `is_running`: this array has written a fence there, and nobody but who takes the copies over takes it away.
Status ArrayTier::Impl::check_own(const ObjectStore& objects, const TierBinding& binding, const TierFence& stored,
                                  bool is_running) const {
  const bool is_own = stored.token.empty() ? !is_running || has_no_fence_
                                           : std::ranges::find(binding.fences, stored.token) != binding.fences.end();
  if (is_own) return Status::ok();
  if (stored.token.empty() || !stored.by.empty())
    return Status::error(
        StatusCode::kWrongStore,
        fmt::format("tier: {}: what this array has copied there has become {}'s, where it was restored; nothing is "
                    "copied: have this array copy to another directory or prefix (fpfs tier set), or end that one, "
                    "fetch what it has saved since, and fpfs tier set --existing here, which replaces and removes "
                    "there what is not as here",
                    objects.describe(), stored.by.empty() ? "another array" : "array " + stored.by));
  return Status::error(
      StatusCode::kWrongStore,
      fmt::format("tier: {} has copies that may be of a newer state of this array, as when its members were put back "
                  "from a backup; so that nothing newer is replaced or removed, nothing is copied: fetch from "
                  "there all that is missing here, or newer there; then fpfs tier set --existing, which replaces "
                  "there what is another version, and removes what is not here",
                  objects.describe()));
}

// Whether this array, where it has copied there already, is as new as that. What cannot be read says nothing.
Status ArrayTier::Impl::check_known(ObjectStore& objects) {
  const std::string array = to_string(store_.array().id());
  const Result<TierFence> stored =
      ask<Result<TierFence>>([&](ObjectStore::Done<TierFence> done) { read_fence(objects, array, std::move(done)); });
  if (!stored.is_ok()) return stored.status().code() == StatusCode::kCorruption ? Status::ok() : stored.status();
  const Result<std::optional<TierBinding>> remembered = load_binding(store_.storage(), store_.array(), true);
  if (!remembered.is_ok()) return Status::ok();
  return check_own(objects, remembered->value_or(TierBinding()), *stored, false);
}

// An operator has said so, who knows what is there: also what a newer state of the array has copied. The newest of
// the binding's fences is then to be written; only what replaces a damaged one is already.
Status ArrayTier::Impl::remember(ObjectStore& objects, TierBinding& binding) {
  const std::string array = to_string(store_.array().id());
  const Result<TierFence> stored =
      ask<Result<TierFence>>([&](ObjectStore::Done<TierFence> done) { read_fence(objects, array, std::move(done)); });
  const bool is_damaged = stored.status().code() == StatusCode::kCorruption;
  if (!stored.is_ok() && !is_damaged) return stored.status();
  const std::string token = fmt::format("{:016x}", environment_.random_u64());
  binding.fences = known_fences({}, is_damaged ? "" : stored->token, token);
  FPFS_RETURN_IF_ERROR(save_binding(store_.storage(), store_.array(), binding));
  if (!is_damaged) return Status::ok();
  return ask<Status>([&](ObjectStore::DoneStatus done) { write_fence(objects, array, {token}, std::move(done)); });
}

// --- Impl: made another store's --------------------------------------------------------------------------------------

Status ArrayTier::Impl::do_set(const TierSet& set) {
  if (is_stopping()) return Status::error(StatusCode::kCancelled, "the mount is ending");
  if (store_.read_only()) {
    const std::string turned = store_.status().read_only_reason;
    return Status::error(StatusCode::kReadOnly,
                         (turned.empty() ? "the array is mounted read-only" : turned) + ": it cannot remember a store");
  }
  FPFS_ASSIGN_OR_RETURN(const std::unique_ptr<ObjectStore> objects,
                        make_store(set.url, Priority::kRequests, quick_answers()));
  // Before anything is written there: it may be an empty mount point, or no place for copies.
  Status fits = check_place(set);
  if (fits.is_ok()) fits = check_nothing_is_away(*objects, set.url);
  if (fits.is_ok() && set.restores) fits = check_restorable(*objects, set);
  if (fits.is_ok() && !set.has_other_files) fits = check_known(*objects);
  if (!fits.is_ok()) {
    objects->close();
    return fits;
  }
  TierInit init;
  init.array_id = to_string(store_.array().id());
  const uint64_t random = environment_.random_u64();
  init.new_store_id = to_string(make_uuid(random, environment_.random_u64()));
  init.host = set.host;
  init.mounted_at = set.mounted_at;
  init.now_s = environment_.now().tv_sec;
  init.share = set.share || set.restores;
  init.has_other_files = set.has_other_files;
  const Result<TierIdentity> made = ask<Result<TierIdentity>>(
      [&](ObjectStore::Done<TierIdentity> done) { init_tier(*objects, init, std::move(done)); });
  Status done = made.status();
  TierBinding binding;
  if (done.is_ok()) {
    binding.store_id = made.value().store_id;
    binding.url = set.url;
    const Result<std::optional<TierBinding>> before = load_binding(store_.storage(), store_.array());
    if (before.is_ok() && before->has_value()) binding.is_away = (**before).is_away;
    if (before.is_ok() && before->has_value() && (**before).store_id == binding.store_id)
      binding.shares = (**before).shares;
    if (done.is_ok() && set.restores) done = begin_restoring(*objects, set, made.value(), binding);
    if (done.is_ok())
      done = remember(*objects, binding);
    else if (!before.is_ok() || !before->has_value() || (**before).store_id != binding.store_id)
      static_cast<void>(
          ask<Status>([&](ObjectStore::DoneStatus left) { leave_tier(*objects, init.array_id, std::move(left)); }));
  }
  if (!done.is_ok()) {
    objects->close();
    return done;
  }
  end_session();
  {
    const MutexLock lock(mutex_);
    url_ = set.url;
    place_ = place_of(set.url);
    store_id_ = made.value().store_id;
    failure_ = Status::ok();
    attempts_ = 0;
  }
  has_tried(connect_to_proven(*objects, binding));
  const MutexLock lock(mutex_);
  return set.restores ? failure_ : Status::ok();
}

// That array, if it is still there, changes nothing there any more once wait_for_end_of() has returned.
Status ArrayTier::Impl::begin_restoring(ObjectStore& objects, const TierSet& set, const TierIdentity& made,
                                        TierBinding& binding) {
  FPFS_ASSIGN_OR_RETURN(binding.restores, array_to_restore(objects, set, made));
  binding.is_away = true;
  const Result<TierFence> stored = ask<Result<TierFence>>(
      [&](ObjectStore::Done<TierFence> done) { read_fence(objects, binding.restores, std::move(done)); });
  const bool is_damaged = stored.status().code() == StatusCode::kCorruption;
  if (!stored.is_ok() && !is_damaged) return stored.status();
  TierFence fence{fmt::format("{:016x}", environment_.random_u64())};
  fence.ended = stored.is_ok() && (stored->ended || stored->token.empty());
  fence.by = to_string(store_.array().id());
  return ask<Status>(
      [&](ObjectStore::DoneStatus done) { write_fence(objects, binding.restores, fence, std::move(done)); });
}

// Until the array whose copies are restored has seen that they are no longer its own, if it may still be there. It may
// write its own fence once more over the one that says so, which it was about to: then all begins anew.
Status ArrayTier::Impl::wait_for_end_of(ObjectStore& objects, const std::string& array) {
  const std::string self = to_string(store_.array().id());
  const auto read = [&](ObjectStore::Done<TierFence> done) { read_fence(objects, array, std::move(done)); };
  for (bool has_waited = false;;) {
    FPFS_ASSIGN_OR_RETURN(TierFence fence, ask<Result<TierFence>>(read));
    const bool is_claimed = fence.by == self;
    if (fence.token.empty() || (is_claimed && fence.ended)) return Status::ok();
    if (!is_claimed) fence = {fmt::format("{:016x}", environment_.random_u64()), fence.ended, self};
    if (is_claimed && has_waited) fence.ended = true;
    if (!is_claimed || fence.ended)
      FPFS_RETURN_IF_ERROR(
          ask<Status>([&](ObjectStore::DoneStatus done) { write_fence(objects, array, fence, std::move(done)); }));
    if (fence.ended) continue;
    const auto wait = options_.lease + options_.lease / 2;
    log(LogLevel::kInfo,
        "tier: array {} has not said that it ended; for the case that it still runs, what it has copied is restored in "
        "{} s",
        array, std::chrono::duration_cast<std::chrono::seconds>(wait).count());
    for (const auto end = Clock::now() + wait; Clock::now() < end;) {
      MutexLock lock(mutex_);
      if (stopping_) return Status::error(StatusCode::kCancelled, "the mount is ending");
      changed_.wait_for(mutex_, end - Clock::now());
    }
    has_waited = true;
  }
}

// Which array's copies become this one's.
Result<std::string> ArrayTier::Impl::array_to_restore(ObjectStore& objects, const TierSet& set,
                                                      const TierIdentity& made) {
  std::vector<std::string> others = made.arrays;
  std::erase(others, to_string(store_.array().id()));
  const auto refuse = [](const std::string& why) {
    return Status::error(StatusCode::kInvalidArgument, "tier: " + why);
  };
  std::string restored = set.restored_array;
  if (restored.empty() && others.size() == 1) restored = others.front();
  // The same command again: what it has restored is this array's already, or is about to be.
  if (restored.empty() && others.empty()) {
    const Result<std::optional<TierBinding>> remembered = load_binding(store_.storage(), store_.array());
    if (remembered.is_ok() && remembered->has_value() && (**remembered).store_id == made.store_id) {
      const TierBinding& binding = **remembered;
      if (!binding.restores.empty() || !binding.restored.empty())
        restored = binding.restores.empty() ? binding.restored.back() : binding.restores;
    }
  }
  if (restored.empty() && others.empty())
    return refuse("no other array has copies there; if one had them, say which: --array ID");
  if (restored.empty())
    return refuse(fmt::format("{} arrays copy there: {}; say which is to be restored: --array ID", others.size(),
                              describe_arrays(objects, others)));
  FPFS_RETURN_IF_ERROR(check_tier_uuid("array", restored));
  std::erase(others, restored);
  if (!others.empty() && !set.share)
    return Status::error(StatusCode::kExists, fmt::format("tier: it is also in use by {}; have it shared (--share)",
                                                          describe_arrays(objects, others)));
  return restored;
}

// With what tells them apart, of a few.
std::string ArrayTier::Impl::describe_arrays(ObjectStore& objects, const std::vector<std::string>& arrays) {
  constexpr size_t kDescribedMax = 5;
  std::string text;
  for (size_t i = 0; i < arrays.size() && i < kDescribedMax; ++i) {
    const Result<std::string> array = ask<Result<std::string>>(
        [&](ObjectStore::Done<std::string> done) { describe_tier_array(objects, arrays[i], std::move(done)); });
    text += (i == 0 ? "" : ", ") + (array.is_ok() ? *array : arrays[i]);
  }
  if (arrays.size() > kDescribedMax)
    text += fmt::format(", and {}, which the store lists in {}", format_count(arrays.size() - kDescribedMax, "other"),
                        std::string(ObjectStore::kMarkerPrefix) + "/arrays");
  return text;
}

// Copies are to be elsewhere than what they are copies of.
Status ArrayTier::Impl::check_place(const TierSet& set) {
  const Result<TierUrl> url = parse_tier_url(set.url);
  if (!url.is_ok() || url->kind != TierUrl::Kind::kFile) return url.status();
  const auto refuse = [&](const std::string& where) {
    return Status::error(StatusCode::kInvalidArgument,
                         fmt::format("tier: {} is within {}; name a directory on another drive", url->path, where));
  };
  struct stat place {};
  struct stat above {};
  if (::stat(url->path.c_str(), &place) != 0) return Status::ok();  // which the store says better
  if (!set.mounted_at.empty() && ::stat(set.mounted_at.c_str(), &above) == 0 && above.st_dev == place.st_dev)
    return refuse(fmt::format("this array's mount {}", set.mounted_at));
  std::vector<std::pair<std::string, struct stat>> own;
  const Array& array = store_.array();
  for (const MemberIndex m : array.members())
    if (struct stat attributes{}; array.member(m).present && ::stat(array.member(m).path.c_str(), &attributes) == 0)
      own.emplace_back(array.member(m).path, attributes);
  if (const Result<struct stat> names = store_.storage().fstat(array.metadata_directory()); names.is_ok())
    own.emplace_back(store_.storage().describe(array.metadata_directory()), *names);
  std::error_code error;
  std::filesystem::path path = std::filesystem::canonical(url->path, error);
  for (; !error && !path.empty(); path = path.parent_path()) {
    if (::stat(path.c_str(), &above) != 0) break;
    for (const auto& [name, attributes] : own)
      if (attributes.st_dev == above.st_dev && attributes.st_ino == above.st_ino)
        return refuse(fmt::format("a directory of this array ({})", name));
    if (path == path.root_path()) break;
  }
  return Status::ok();
}

// What may become the array's store.
Status ArrayTier::Impl::check_nothing_is_away(ObjectStore& objects, const std::string& url) {
  const Result<std::optional<TierBinding>> remembered = load_binding(store_.storage(), store_.array());
  if (!remembered.is_ok() || !remembered->has_value() || !(**remembered).is_away) return Status::ok();
  using Identity = std::optional<TierIdentity>;
  FPFS_ASSIGN_OR_RETURN(const Identity found, ask<Result<Identity>>([&](ObjectStore::Done<Identity> done) {
                          read_tier(objects, std::move(done));
                        }));
  const Status away = check_nothing_is_away(found ? found->store_id : "");
  if (away.is_ok() || found || place_of((**remembered).url) != place_of(url)) return away;
  return Status::error(away.code(),
                       fmt::format("tier: {} has no {}, but content of this array lies there only: is it mounted?",
                                   objects.describe(), tier_identity_key()));
}

Status ArrayTier::Impl::check_nothing_is_away(const std::string& store_id) {
  const Result<std::optional<TierBinding>> remembered = load_binding(store_.storage(), store_.array());
  if (!remembered.is_ok() || !remembered->has_value() || !(**remembered).is_away) return Status::ok();
  if ((**remembered).store_id == store_id) return Status::ok();
  FPFS_ASSIGN_OR_RETURN(const std::string path, find_away(store_, [this] { return is_stopping(); }));
  if (path.empty()) return Status::ok();
  return Status::error(StatusCode::kBusy,
                       fmt::format("tier: content lies in {} only, of {} for one; bring it back before: fpfs tier "
                                   "restore MOUNTPOINT, on a mount without tier_keep, and remove what cannot be had",
                                   place_of((**remembered).url), path));
}

Status ArrayTier::Impl::do_leave() {
  if (is_stopping()) return Status::error(StatusCode::kCancelled, "the mount is ending");
  if (store_.read_only())
    return Status::error(StatusCode::kReadOnly,
                         "the array is mounted read-only, or turned read-only: it cannot forget its store");
  const Result<std::optional<TierBinding>> remembered = load_binding(store_.storage(), store_.array(), true);
  if (remembered.is_ok() && !remembered->has_value())
    return Status::error(StatusCode::kNotFound, "this array copies nowhere: there is no store to leave");
  FPFS_RETURN_IF_ERROR(check_nothing_is_away(""));
  // Until the store has been told, what there is to tell it is remembered.
  std::optional<TierBinding> left_behind;
  if (remembered.is_ok()) {
    left_behind = *remembered;
    left_behind->has_left = true;
    left_behind->is_away = left_behind->shares = false;
    left_behind->restores.clear();
  }
  FPFS_RETURN_IF_ERROR(save_binding(store_.storage(), store_.array(), left_behind));
  end_session();
  save_lost();
  std::string url;
  std::vector<Waiting> waiting;
  {
    const MutexLock lock(mutex_);
    lost_ = nullptr;
    store_.tell_names(false);
    url = std::exchange(url_, "");
    if (url.empty() && remembered.is_ok()) url = (**remembered).url;
    place_.clear();
    store_id_.clear();
    failure_ = Status::ok();
    uncopied_since_s_ = 0;
    waiting = take_all_waiting();
  }
  for (const Waiting& waits : waiting)
    waits.done(Status::error(StatusCode::kCancelled, "the array copies there no more"));
  if (url.empty()) return Status::ok();
  const Result<std::unique_ptr<ObjectStore>> objects = make_store(url, Priority::kRequests, quick_answers());
  Status left = objects.status();
  if (left.is_ok()) {
    left = ask<Status>([&](ObjectStore::DoneStatus done) {
      leave_tier(*objects.value(), to_string(store_.array().id()), std::move(done));
    });
    objects.value()->close();
  }
  log(LogLevel::kInfo, "tier: this array copies to {} no more", place_of(url));
  if (left.is_ok()) return save_binding(store_.storage(), store_.array(), std::nullopt);
  return Status::error(left.code(), fmt::format("this array copies to {} no more, but the store still lists it: {}; "
                                                "when it is there again, fpfs tier set MOUNTPOINT none once more",
                                                place_of(url), left.message()));
}

}  // namespace fpfs
