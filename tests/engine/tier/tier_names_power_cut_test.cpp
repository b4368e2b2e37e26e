// Copies of a whole tree, while names come, go and move, attributes change, the power goes at any step, and the store
// fails calls, loses answers and goes away. What holds after every life:
//
//   - a manifest of a file lies beside a content; where it names that, it describes it, and a commit made it
//   - what the array says of a copy (its note) is there, wherever the file is, unless another file was at that path
//   - what belongs to somebody else is untouched
//   - of a file whose content may lie in the store only (kPathAttribute; here it is in the array, too, to be compared
//     with) there is a copy where its sidecar says, or where it is, at every moment
//
// and in the end, when the store is well: with TierDelete::kFollow the store has what the array's tree has, attributes
// and all, and nothing else; with kKeep it has that, and whatever it ever had. No two calls write one key at a time.
//
// Each mistake that is planted must be noticed by some seed.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdlib>
#include <map>
#include <set>

#include "tests/engine/tier/sim_tier.h"
#include "tests/support/sanitizers.h"

namespace fpfs::test {
namespace {

enum class NameMistake : uint8_t {
  kNone,
  kRemovalNotDurable,    // a copy is removed before the removal of its name is durable
  kContentRemovedFirst,  // a content is removed before its manifest
  kSourceNotKept,        // the copy of a file that was moved is removed before the new one is complete
  kManifestNotAwaited,   // ... or before its manifest is
  kNamesNotTold,         // of whoever runs the copier: no scan, and nothing is told
  kAwayNotTold,          // of whoever runs the copier: it does not know that content may lie in the store only
};

// What a path leads to.
struct Seen {
  TierManifest expected;  // without checksums and tag
  Bytes content;
  std::optional<TierNote> note;
  uint64_t inode = 0;
  std::string copied_at;  // kPathAttribute
};

class NameLives {
 public:
  NameLives(uint64_t seed, NameMistake mistake)
      : random_(SimRandom(seed ^ 0x6e616d6573).next()),
        mistake_(mistake),
        keeps_(mistake == NameMistake::kNone && random_.chance(20)),
        tier_(seed, store_options(), copy_options()),
        away_random_(seed ^ 0x61776179),
        has_away_(mistake == NameMistake::kAwayNotTold || (mistake == NameMistake::kNone && away_random_.chance(50))) {
    using Planted = SimObjectStore::Planted;
    if (mistake == NameMistake::kContentRemovedFirst) tier_.objects().plant(Planted::kContentRemovedFirst);
    if (mistake == NameMistake::kSourceNotKept) tier_.objects().plant(Planted::kSourceNotKept);
    if (mistake == NameMistake::kManifestNotAwaited) tier_.objects().plant(Planted::kManifestNotAwaited);
    if (mistake == NameMistake::kRemovalNotDurable) tier_.array().sim().plant(SimPlantedBug::kTreeDirectorySyncSkipped);
  }

  // The first thing that was wrong.
  std::string run() {
    plant_foreign();
    begin();
    const uint64_t lives = random_.between(1, 3);
    for (uint64_t life = 0; life < lives && wrong_.empty(); ++life) live();
    if (wrong_.empty()) heal();
    return wrong_;
  }
  uint64_t looked_at() const { return looked_at_; }
  uint64_t removed() const { return removed_; }
  uint64_t described() const { return described_; }

 private:
  void begin() {
    if (has_away_ && mistake_ != NameMistake::kAwayNotTold) tier_.copier().content_is_away();
    tier_.copier().open();
  }
  SimObjectStore::Options store_options() {
    SimObjectStore::Options options;
    if (random_.chance(50)) {
      options.failed_percent = static_cast<unsigned>(random_.below(15));
      options.lost_percent = static_cast<unsigned>(random_.below(15));
    }
    options.delay_ms_max = static_cast<unsigned>(random_.between(1, 100));
    return options;
  }
  TierCopyOptions copy_options() const {
    TierCopyOptions options = tier_copy_options();
    if (keeps_) options.tier_delete = TierDelete::kKeep;
    return options;
  }
  void fail(const std::string& what) {
    if (wrong_.empty() && !is_off()) wrong_ = what;
  }
  bool is_off() { return tier_.world().is_off(); }
  Store& store() { return tier_.array().store(); }
  Storage& storage() { return store().storage(); }

  // A file of another array, and one of nobody.
  void plant_foreign() {
    TierManifest manifest;
    manifest.array_id[0] = std::byte{0xff};
    manifest.path = "d/other";
    manifest.mode = S_IFREG | 0644;
    manifest.content_tag = "f1";
    auto& objects = tier_.objects().objects();
    objects["d/other"] = {{}, {{"fastpersistfs", "somebody.1"}}, "f1"};
    objects[manifest_key("d/other")] = {encode_manifest(manifest), {}, "f2"};
    objects["d/data"] = {Bytes(10), {}, "f3"};
    foreign_ = objects;
  }

  // --- paths ---------------------------------------------------------------------------------------------------------
  struct Place {
    ScopedHandle directory;
    std::string name, path;
  };
  std::string any_path() {
    std::string path;
    for (uint64_t depth = random_.below(3); depth > 0; --depth) path += random_.chance(60) ? "d/" : "e/";
    static const char* const kNames[] = {"a", "b", "c", "d", "e"};
    return path + kNames[random_.below(std::size(kNames))];
  }
  std::optional<Place> place_of(const std::string& path) {
    Result<Handle> handle = storage().reopen(store().root(), O_RDONLY | O_DIRECTORY);
    if (!handle.is_ok()) return std::nullopt;
    Place place{ScopedHandle(storage(), *handle), path, path};
    for (size_t slash = 0; (slash = place.name.find('/')) != std::string::npos; place.name.erase(0, slash + 1)) {
      handle = storage().open_at(place.directory.get(), place.name.substr(0, slash), O_RDONLY | O_DIRECTORY);
      if (!handle.is_ok()) return std::nullopt;
      place.directory = ScopedHandle(storage(), *handle);
    }
    return place;
  }

  // --- what programs do, until the power goes ------------------------------------------------------------------------
  void live() {
    SimEnvironment& world = tier_.world();
    if (random_.chance(70)) world.cut_at(world.boundaries() + random_.between(1, 500));
    for (uint64_t calls = random_.between(4, 25); calls > 0 && !is_off() && wrong_.empty(); --calls) {
      act();
      send_away_some();
      for (uint64_t steps = random_.chance(50) ? random_.below(250) : 0; steps > 0 && !is_off(); --steps) {
        world.step();
        if (has_away_ && steps % 50 == 0 && !is_off()) look_at_away(walk());
      }
      if (random_.chance(5)) tier_.objects().set_away(true);
      if (random_.chance(30)) tier_.objects().set_away(false);
      if (random_.chance(5)) tier_.copier().scan();
    }
    end();
  }
  void act() {
    std::optional<Place> place = place_of(any_path());
    if (!place.has_value()) place = place_of(random_.chance(50) ? "d" : "e");
    if (!place.has_value()) return;
    const uint64_t what = random_.below(100);
    const Handle directory = place->directory.get();
    if (what < 28) {
      save(*place);
    } else if (what < 38) {
      if (store().make_directory(directory, place->name, 0755).is_ok()) came_to(place->path);
    } else if (what < 42) {
      if (store().symlink("to" + std::to_string(++salt_), directory, place->name).is_ok()) came_to(place->path);
    } else if (what < 44) {
      const bool is_fifo = random_.chance(50);
      const Status made =
          store().make_node(directory, place->name, (is_fifo ? S_IFIFO : S_IFCHR) | 0600, is_fifo ? 0 : makedev(1, 3));
      if (made.is_ok()) came_to(place->path);
    } else if (what < 60) {
      remove(*place);
    } else if (what < 78) {
      move(*place);
    } else if (what < 84) {
      link(*place);
    } else if (what < 96) {
      change_attributes(*place);
    } else {
      static_cast<void>(store().sync_directory(directory));
    }
  }
  // Files whose copies are right: from then on the array may rely on these.
  void send_away_some() {
    if (!has_away_ || is_off() || !away_random_.chance(30)) return;
    const std::map<std::string, Seen> tree = walk();
    for (const auto& [path, seen] : tree)
      if (!is_off() && !path.ends_with('/') && away_random_.chance(50)) send_away(path, seen);
    for (const auto& [path, seen] : tree) {
      if (is_off() || !away_.contains(seen.inode) || !away_random_.chance(30)) continue;
      const std::optional<Place> place = place_of(path);
      if (!place.has_value()) continue;
      move(*place);
      if (!is_off()) save(*place);
    }
  }
  void send_away(const std::string& path, const Seen& seen) {
    const auto copy = tier_.copy(path);
    if (seen.content.empty() || !copy.has_value() || *copy != seen.content) return;
    if (!seen.note.has_value() || seen.note->place != TierNote::place_of("sim://store", path)) return;
    const std::optional<Place> place = place_of(path);
    if (!place.has_value()) return;
    Result<Store::Node> node = store().lookup(place->directory.get(), place->name);
    if (!node.is_ok()) return;
    Result<std::shared_ptr<File>> file = store().open_file(node->handle.get(), false);
    if (!file.is_ok() || (*file)->info().sequence != seen.note->sequence || (*file)->is_dirty()) return;
    if ((*file)->set_note(ChunkSource::kPathAttribute, std::as_bytes(std::span(path)), true).is_ok())
      away_[seen.inode] = hash_bytes(seen.content);
  }
  void came_to(const std::string& path) { ++comers_[path]; }
  void save(const Place& place) {
    std::shared_ptr<File> file;
    Result<Store::Node> node = store().lookup(place.directory.get(), place.name);
    if (!node.is_ok()) {
      Result<Store::Created> created = store().create(place.directory.get(), place.name, 0644);
      if (!created.is_ok()) return;
      file = std::move(created->file);
      came_to(place.path);
    } else {
      if (!S_ISREG(node->attributes.st_mode)) return;
      Result<std::shared_ptr<File>> opened = store().open_file(node->handle.get(), true);
      if (!opened.is_ok()) return;
      file = std::move(*opened);
      if (!tier_.array().control(*file, ControlRequest::Kind::kTruncate, 0).is_ok()) return;
    }
    node = Status::error(StatusCode::kNotFound, "");  // no handle stays open
    if (random_.chance(90)) {
      const Bytes content = make_bytes(random_.between(1, random_.chance(70) ? 3000 : 4 * kTestChunk), ++salt_);
      contents_.insert(hash_bytes(content));
      if (!tier_.array().write(*file, 0, content).is_ok()) return;
    }
    static_cast<void>(tier_.array().control(*file, ControlRequest::Kind::kClose));
  }
  void remove(const Place& place) {
    const Status removed = store().unlink(place.directory.get(), place.name);
    if (!removed.is_ok()) static_cast<void>(store().remove_directory(place.directory.get(), place.name));
  }
  void move(const Place& from) {
    const std::optional<Place> to = place_of(any_path());
    if (!to.has_value()) return;
    for (const Place* end : {&from, &*to}) {
      const Result<struct stat> attributes = storage().stat_at(end->directory.get(), end->name);
      moves_directories_ |= attributes.is_ok() && S_ISDIR(attributes->st_mode);  // what is in there comes along
    }
    const uint64_t how = random_.below(10);
    const unsigned flags = how == 0 ? RENAME_EXCHANGE : how == 1 ? RENAME_NOREPLACE : 0;
    std::optional<Status> moved;
    store().rename_async(from.directory.get(), from.name, to->directory.get(), to->name, flags,
                         [&moved](const Status& status) { moved = status; });
    if (!tier_.world().run_until([&moved] { return moved.has_value(); }) || !moved->is_ok()) return;
    came_to(to->path);
    if (flags == RENAME_EXCHANGE) came_to(from.path);
  }
  void link(const Place& to) {
    const std::optional<Place> from = place_of(any_path());
    if (!from.has_value()) return;
    Result<Store::Node> node = store().lookup(from->directory.get(), from->name);
    if (node.is_ok() && !S_ISDIR(node->attributes.st_mode) &&
        store().link(node->handle.get(), to.directory.get(), to.name).is_ok())
      came_to(to.path);
  }
  void change_attributes(const Place& place) {
    Result<Store::Node> node = store().lookup(place.directory.get(), place.name);
    if (!node.is_ok()) return;
    const Handle handle = node->handle.get();
    const auto value = static_cast<uint32_t>(++salt_);
    const struct timespec times[2] = {{0, UTIME_OMIT}, {value, value}};
    const std::string text = std::to_string(value);
    switch (random_.below(4)) {
      case 0:
        if (!S_ISLNK(node->attributes.st_mode)) static_cast<void>(store().chmod(handle, value & 0777));
        break;
      case 1:
        static_cast<void>(store().chown(handle, value, 7));
        break;
      case 2:
        static_cast<void>(store().set_times(handle, times));
        break;
      default:
        if (S_ISREG(node->attributes.st_mode) || S_ISDIR(node->attributes.st_mode))
          static_cast<void>(store().set_xattr(handle, "user.x", std::as_bytes(std::span(text)), 0));
    }
  }

  void end() {
    const bool goes_in_order = !is_off() && random_.chance(30);
    count();
    if (goes_in_order) {
      tier_.world().cut_at(0);
      if (!tier_.stop()) fail("does not stop");
      tier_.leave_store();
      const Status closed = tier_.array().close();
      if (!closed.is_ok()) fail("the array is not closed: " + closed.message());
    } else {
      const bool is_killed = !is_off() && random_.chance(40);
      tier_.leave();
      is_killed ? tier_.array().kill() : tier_.array().crash();
    }
    if (!wrong_.empty()) return;
    tier_.array().open();
    tier_.connect();
    look_at_store();
    const std::map<std::string, Seen> tree = walk();
    for (const auto& [path, seen] : tree) look_at_note(path, seen);
    look_at_away(tree);
    begin();
  }
  void count() {
    removed_ += tier_.copier().status().copies_removed;
    described_ += tier_.copier().status().manifests_stored;
  }

  // --- what must hold ------------------------------------------------------------------------------------------------
  // The whole tree; directories with a '/' at their end.
  std::map<std::string, Seen> walk() {
    std::map<std::string, Seen> all;
    walk_below(store().root(), "", all);
    return all;
  }
  void walk_below(Handle directory, const std::string& below, std::map<std::string, Seen>& all) {
    std::vector<std::string> names;
    const Status listed = storage().list(directory, [&names](const DirectoryEntry& entry) {
      names.push_back(entry.name);
      return true;
    });
    if (!listed.is_ok()) return fail(below + ": " + listed.message());
    for (const std::string& name : names) {
      Result<Store::Node> node = store().lookup(directory, name);
      if (!node.is_ok()) return fail(below + name + ": " + node.status().message());
      const bool is_directory = S_ISDIR(node->attributes.st_mode);
      const std::string path = below + name + (is_directory ? "/" : "");
      look_at_node(below + name, *node, all[path]);
      if (is_directory) walk_below(node->handle.get(), path, all);
    }
  }
  void look_at_node(const std::string& path, const Store::Node& node, Seen& seen) {
    TierManifest& expected = seen.expected;
    const struct stat attributes = storage().fstat(node.handle.get()).value();
    expected.array_id = store().array().id();
    expected.path = path;
    expected.mode = attributes.st_mode;
    expected.uid = attributes.st_uid;
    expected.gid = attributes.st_gid;
    expected.mtime_seconds = attributes.st_mtim.tv_sec;
    expected.mtime_nanoseconds = static_cast<uint32_t>(attributes.st_mtim.tv_nsec);
    expected.device = S_ISCHR(attributes.st_mode) ? attributes.st_rdev : 0;
    if (S_ISLNK(attributes.st_mode)) expected.target = storage().read_link(node.handle.get()).value();
    std::array<char, 32> value{};
    const auto bytes = std::as_writable_bytes(std::span(value));
    if (const auto length = storage().get_xattr(node.handle.get(), "user.x", bytes); length.is_ok())
      expected.xattrs["user.x"] = std::string(value.data(), *length);
    if (!S_ISREG(attributes.st_mode)) return;
    seen.note = note_of(node.handle.get());
    seen.inode = attributes.st_ino;
    std::array<char, 256> copied_at{};
    if (const auto length = storage().get_xattr(node.handle.get(), ChunkSource::kPathAttribute,
                                                std::as_writable_bytes(std::span(copied_at)));
        length.is_ok())
      seen.copied_at = std::string(copied_at.data(), *length);
    Result<std::shared_ptr<File>> file = store().open_file(node.handle.get(), false);
    if (!file.is_ok()) return fail(path + ": " + file.status().message());
    const auto info = (*file)->info();
    expected.file_id = info.file_id;
    expected.sequence = info.sequence;
    expected.size = (*file)->size();
    expected.chunk_size = expected.size > 0 ? kTestChunk : 0;
    Result<Bytes> content = tier_.array().read_all(**file);
    if (!content.is_ok()) return fail(path + ": " + content.status().message());
    seen.content = std::move(*content);
  }
  std::optional<TierNote> note_of(Handle node) {
    std::array<std::byte, TierNote::kBytes> bytes;
    const auto length = storage().get_xattr(node, TierNote::kAttribute, bytes);
    if (!length.is_ok()) return std::nullopt;
    const Result<TierNote> note = decode_note(std::span(bytes).first(*length));
    return note.is_ok() ? std::optional<TierNote>(*note) : std::nullopt;
  }
  // What has changed since is in the array.
  void look_at_away(const std::map<std::string, Seen>& tree) {
    const auto& objects = tier_.objects().objects();
    for (const auto& [path, seen] : tree) {
      const auto away = away_.find(seen.inode);
      if (seen.copied_at.empty() || away == away_.end() || hash_bytes(seen.content) != away->second) continue;
      bool is_there = false;
      for (const std::string& key : {seen.copied_at, path})
        if (const auto found = objects.find(key); found != objects.end())
          is_there |= found->second.content == seen.content;
      if (!is_there) return fail(path + " is away, and no copy is there, nor at " + seen.copied_at);
      ++looked_at_;
    }
  }
  bool is_foreign(const std::string& key) const { return foreign_.contains(key); }
  void look_at_store() {
    const auto& objects = tier_.objects().objects();
    for (const auto& [key, object] : foreign_)
      if (const auto found = objects.find(key); found == objects.end() || found->second.tag != object.tag)
        return fail(key + " belongs to somebody else, and is gone");
    for (const std::string& key : kept_)
      if (!objects.contains(key)) return fail(key + " was to be kept");
    for (const auto& [key, object] : objects) {
      if (keeps_ && !is_foreign(key)) kept_.insert(key);
      const std::string path(path_of_manifest(key));
      if (!path.empty() && !is_foreign(key)) look_at_manifest(path, object);
    }
  }
  void look_at_manifest(const std::string& path, const SimObjectStore::Object& object) {
    const Result<TierManifest> manifest = decode_manifest(object.content);
    if (!manifest.is_ok()) return fail(path + ": " + manifest.status().message());
    if (manifest->path + (S_ISDIR(manifest->mode) ? "/" : "") != path)
      return fail(path + " has the manifest of " + manifest->path);
    if (!manifest->is_file()) return;
    const auto& objects = tier_.objects().objects();
    const auto content = objects.find(path);
    if (content == objects.end()) return fail(path + " has a manifest, and no content");
    if (content->second.tag != manifest->content_tag) return;
    const Bytes& bytes = content->second.content;
    if (bytes.size() != manifest->size || !SimTier::is_described(*manifest, bytes))
      return fail(path + ": the manifest describes other content");
    if (!bytes.empty() && !contents_.contains(hash_bytes(bytes))) fail(path + ": the copy is what no commit made");
  }
  // The copy that a note tells of is there: here, or wherever the file was, or by now is.
  void look_at_note(const std::string& path, const Seen& seen) {
    if (!seen.note.has_value() || seen.note->file_id == FileId()) return;  // an empty file gets an id later
    const std::string mark = fmt::format("{}.{:016x}.", to_string(store().array().id()), seen.note->file_id.value());
    bool is_there = false, is_excused = moves_directories_;
    for (const auto& [key, object] : tier_.objects().objects()) {
      const bool is_at_note = TierNote::place_of("sim://store", key) == seen.note->place || key == seen.copied_at;
      // Content that is newer comes before its manifest.
      const auto found = object.metadata.find("fastpersistfs");
      is_there |= path_of_manifest(key).empty() && found != object.metadata.end() && found->second.starts_with(mark) &&
                  (is_at_note || tier_.copy(key).has_value());
    }
    for (const auto& [comer, count] : comers_)
      if (TierNote::place_of("sim://store", comer) == seen.note->place) is_excused = count > 1;
    if (!is_there && !is_excused) fail(path + " is noted as copied, and no copy is there");
  }

  // --- the end -------------------------------------------------------------------------------------------------------
  void heal() {
    SimObjectStore::Options options;
    options.delay_ms_max = 20;
    tier_.objects().set_options(options);
    tier_.objects().set_away(false);
    settle(true);
    // Without a scan, or with those that the copier itself asks for: what is told is enough.
    if (mistake_ == NameMistake::kNamesNotTold) tier_.set_deaf(true);
    for (int calls = 0; calls < 6 && wrong_.empty(); ++calls) act();
    settle(false);
    for (uint64_t calls = random_.between(0, 8); calls > 0 && wrong_.empty(); --calls) {
      act();
      for (uint64_t steps = random_.below(80); steps > 0; --steps) tier_.world().step();
    }
    if (mistake_ != NameMistake::kNamesNotTold) settle(true);
    count();
    if (mistake_ == NameMistake::kNone && tier_.objects().conflicts() > 0)
      fail(fmt::format("{} calls of the store wrote a key that another one did", tier_.objects().conflicts()));
  }
  void settle(bool scans) {
    if (!wrong_.empty()) return;
    if (scans) {
      const Status copied = tier_.wait_for_all();
      if (!copied.is_ok()) return fail("not everything is copied: " + copied.message());
    } else {
      tier_.world().run_until([this] {
        const TierCopyStatus status = tier_.copier().status();
        return status.files_waiting == 0 && !status.is_scanning && !status.is_scan_due;
      });
    }
    look_at_store();
    compare(scans);
  }
  // Without a scan nothing is known of the time of a directory that something was made in; nor of a copy at a path where
  // another file was, and left it before it was copied.
  void compare(bool is_scanned) {
    const std::map<std::string, Seen> tree = walk();
    look_at_away(tree);
    for (const auto& [path, seen] : tree) compare_copy(path, seen, is_scanned);
    if (keeps_) return;
    for (const auto& [key, object] : tier_.objects().objects()) {
      if (is_foreign(key)) continue;
      const bool is_manifest = !path_of_manifest(key).empty();
      const std::string path = is_manifest ? std::string(path_of_manifest(key)) : key;
      if (!is_scanned && (moves_directories_ || comers_[path] > 1)) continue;
      const auto found = tree.find(path);
      const bool is_right = found != tree.end() && (is_manifest || found->second.expected.is_file());
      if (!is_right) return fail(key + " is in the store, and nothing of it in the array");
    }
  }
  void compare_copy(const std::string& path, const Seen& seen, bool with_directory_times) {
    const std::optional<TierManifest> stored = tier_.manifest(path);
    if (!stored.has_value()) return fail(path + " has no manifest in the end");
    TierManifest manifest = *stored, expected = seen.expected;
    if (manifest.is_file()) {
      const std::optional<Bytes> copy = tier_.copy(path);
      if (!copy.has_value() || *copy != seen.content) return fail(path + " has another content in the end");
      if (!manifest.content.empty() && manifest.content != seen.content)
        return fail(path + " has another content in its manifest");
      manifest.content.clear();
      manifest.content_tag.clear();
      manifest.checksums.clear();
      manifest.stored_checksums.clear();
      manifest.generation = {};
    } else if (path.ends_with('/') && !with_directory_times) {
      manifest.mtime_seconds = expected.mtime_seconds;
      manifest.mtime_nanoseconds = expected.mtime_nanoseconds;
    }
    if (manifest != expected)
      fail(fmt::format("{} has another manifest in the end: mode {:o} {:o}, owner {} {}, time {} {}, commit {} {}",
                       path, manifest.mode, expected.mode, manifest.uid, expected.uid, manifest.mtime_seconds,
                       expected.mtime_seconds, manifest.sequence, expected.sequence));
  }

  SimRandom random_;
  const NameMistake mistake_;
  const bool keeps_;
  SimTier tier_;
  SimRandom away_random_;
  const bool has_away_;
  std::map<uint64_t, uint64_t> away_;  // hashes of their content, by inode
  std::map<std::string, SimObjectStore::Object> foreign_;
  std::set<std::string> kept_;
  std::set<uint64_t> contents_;             // hashes of all that was written and committed, or may be
  std::map<std::string, unsigned> comers_;  // how often something came to be at a path
  bool moves_directories_ = false;
  uint64_t salt_ = 0, removed_ = 0, described_ = 0, looked_at_ = 0;
  std::string wrong_;
};

// FPFS_TIER_SEED=N: one seed. FPFS_TIER_SEEDS=N: so many.
uint64_t number_of(const char* name, uint64_t otherwise) {
  const char* const given = std::getenv(name);
  return given == nullptr ? otherwise : std::strtoull(given, nullptr, 10);
}

const uint64_t kSeeds = number_of("FPFS_TIER_SEEDS", 1000);

TEST(TierNamesPowerCutTest, InTheEndTheStoreHasWhatTheArrayHas) {
  if (const uint64_t seed = number_of("FPFS_TIER_SEED", 0); seed > 0) {
    EXPECT_EQ(NameLives(seed, NameMistake::kNone).run(), "") << "seed " << seed;
    return;
  }
  uint64_t removed = 0, described = 0, looked_at = 0;
  for (uint64_t seed = 1; seed <= alike(kSeeds); ++seed) {
    NameLives lives(seed, NameMistake::kNone);
    ASSERT_EQ(lives.run(), "") << "seed " << seed;
    removed += lives.removed();
    described += lives.described();
    looked_at += lives.looked_at();
  }
  EXPECT_GT(looked_at, alike(kSeeds));
  EXPECT_GT(removed, alike(kSeeds));
  EXPECT_GT(described, alike(kSeeds));
}

TEST(TierNamesPowerCutTest, EveryPlantedMistakeIsNoticed) {
  if (kIsSanitized) GTEST_SKIP() << "whether a seed notices it is the same with a sanitizer";
  for (const NameMistake mistake :
       {NameMistake::kRemovalNotDurable, NameMistake::kContentRemovedFirst, NameMistake::kSourceNotKept,
        NameMistake::kManifestNotAwaited, NameMistake::kNamesNotTold, NameMistake::kAwayNotTold}) {
    std::string wrong;
    uint64_t seed = 0;
    while (wrong.empty() && ++seed <= kSeeds) wrong = NameLives(seed, mistake).run();
    EXPECT_NE(wrong, "") << "mistake " << static_cast<int>(mistake);
    RecordProperty("mistake " + std::to_string(static_cast<int>(mistake)), fmt::format("seed {}: {}", seed, wrong));
    fmt::print("mistake {}: seed {}: {}\n", static_cast<int>(mistake), seed, wrong);
  }
}

}  // namespace
}  // namespace fpfs::test
