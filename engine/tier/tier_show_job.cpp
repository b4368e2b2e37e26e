// The steps by which a version of another array is shown:
//
//   1. made   a file without a name, whose content lies in the store, under the path where the other array has it
//   2. copy   of a version that is kept beside its path: of its own there (tier_conflict_job.cpp)
//   3. commit
//   4. name   given, or exchanged with that of what is replaced; which is looked at once more, and then removed
//
// What is here already, and the same, is only noted to be as the other array has it.
#include <fcntl.h>
#include <sys/stat.h>

#include <functional>
#include <memory>
#include <utility>

#include "engine/base/log.h"
#include "engine/tier/tier_copier_impl.h"
#include "engine/tier/tier_silence.h"

namespace fpfs {
namespace {

constexpr int kToList = O_RDONLY | O_DIRECTORY;

// The commit of a file that is to be shown.
struct ShownCommit {
  ControlRequest request;
  std::function<void(const Status&)> done;
};

}  // namespace

// --- notes -----------------------------------------------------------------------------------------------------------

TierNote TierCopier::Impl::note_of_theirs(const StoredManifest& stored, const std::string& path,
                                          uint64_t attributes) const {
  TierNote note;
  note.place = place_of(path);
  note.size = stored.manifest.size;
  note.content_tag = stored.manifest.content_tag.empty() ? 0 : TierNote::tag_of(stored.manifest.content_tag);
  note.manifest_tag = stored.tag;
  note.attributes = attributes;
  note.is_others = true;
  return note;
}

// --- what is here already --------------------------------------------------------------------------------------------

// The other version has the content that is here already (or is no file, and the same), or both are empty: only what
// is known of it is another. Attributes that were changed here go there.
bool TierCopier::Impl::adopt_if_same(const std::shared_ptr<Job>& job, const Found& found, const Local& local,
                                     const StoredManifest& stored) {
  const TierManifest& theirs = stored.manifest;
  if (theirs.is_file() != found.is_file()) return false;
  TierManifest ours;
  if (!describe(found.node.handle.get(), ours).is_ok()) return false;
  const bool is_empty = found.is_file() && theirs.size == 0 && local.file != nullptr && local.file->info().size == 0;
  const bool is_same_node =
      !found.is_file() && (attributes_of(ours) == attributes_of(theirs) || is_same_link(ours, theirs));
  if (!has_content_of(local, theirs) && !is_empty && !is_same_node) return false;
  const bool is_edited_here = found.is_file() && local.is_unchanged && local.note->attributes != attributes_of(ours);
  is_edited_here ? note_moved(job, local) : adopt(job, found, local, stored, true);
  return true;
}

// Whoever has made it, and when.
bool TierCopier::Impl::is_same_link(const TierManifest& ours, const TierManifest& theirs) {
  return S_ISLNK(ours.mode) && S_ISLNK(theirs.mode) && ours.target == theirs.target;
}

bool TierCopier::Impl::has_content_of(const Local& local, const TierManifest& theirs) {
  return local.is_unchanged && theirs.size > 0 && local.note->size == theirs.size &&
         local.note->content_tag == TierNote::tag_of(theirs.content_tag);
}

// Another array has changed the attributes of what this one has copied.
bool TierCopier::Impl::adopt_edit(const std::shared_ptr<Job>& job, const Found& found, const Local& local,
                                  const StoredManifest& stored) {
  TierManifest ours;
  const bool is_news = local.is_unchanged && found.is_file() && local.note->manifest_tag != stored.tag &&
                       (has_content_of(local, stored.manifest) || (stored.manifest.size == 0 && local.note->size == 0));
  if (!is_news || !describe(found.node.handle.get(), ours).is_ok()) return false;
  if (local.note->attributes != attributes_of(ours)) return false;  // so were they here
  adopt(job, found, local, stored, local.note->is_others);
  return true;
}

void TierCopier::Impl::adopt(const std::shared_ptr<Job>& job, const Found& found, const Local& local,
                             const StoredManifest& stored, bool is_others) {
  const Handle node = found.node.handle.get();
  const auto adopt = [&]() -> Status {
    const Silence silence(*this, {job->file.path});
    TierManifest ours;
    FPFS_RETURN_IF_ERROR(describe(node, ours));
    if (attributes_of(ours) != attributes_of(stored.manifest))
      FPFS_RETURN_IF_ERROR(shown_.describe(node, stored.manifest));
    FPFS_RETURN_IF_ERROR(describe(node, ours));
    job->note = note_of_theirs(stored, job->file.path, attributes_of(ours));
    job->note.is_others = is_others;
    if (!found.is_file()) return note_on(node, job->note);
    job->note.file_id = local.file->info().file_id;
    job->note.sequence = local.sequence;
    return local.file->set_note(TierNote::kAttribute, encode_note(job->note));
  };
  const Status adopted = adopt();
  if (adopted.is_ok()) shown_.tell(found.directory.get(), found.name);
  adopted.is_ok() ? end_job(job, Ending::kIsCopied) : end_with(job, adopted, false);
}

// Names in it are shown one by one; of itself, owner, mode and attributes are what was changed last.
void TierCopier::Impl::adopt_directory(const std::shared_ptr<Job>& job, const Found& found, const Local& local,
                                       const StoredManifest& stored) {
  TierManifest ours;
  if (const Status described = describe(found.node.handle.get(), ours); !described.is_ok())
    return end_with(job, described, false);
  const bool differs = attributes_of(ours) != attributes_of(stored.manifest);
  if (differs && local.note.has_value() && !local.is_unchanged) return begin(job);
  const auto adopt = [&]() -> Status {
    const Silence silence(*this, {std::string(without_slash(job->file.path))});
    FPFS_ASSIGN_OR_RETURN(const Handle opened, store_.storage().open_at(found.directory.get(), found.name, kToList));
    const ScopedHandle directory(store_.storage(), opened);
    if (differs) FPFS_RETURN_IF_ERROR(shown_.describe(directory.get(), stored.manifest));
    TierManifest now;
    FPFS_RETURN_IF_ERROR(describe(directory.get(), now));
    job->note = note_of_theirs(stored, job->file.path, attributes_of(now));
    if (differs) shown_.tell(directory.get(), "");
    return note_on(directory.get(), job->note);
  };
  const Status adopted = adopt();
  adopted.is_ok() ? end_job(job, Ending::kIsCopied) : end_with(job, adopted, false);
}

// --- showing ---------------------------------------------------------------------------------------------------------

void TierCopier::Impl::show(const std::shared_ptr<Job>& job, std::shared_ptr<Shown> shown) {
  job->shown = std::move(shown);
  const Status begun = begin_to_show(*job);
  if (!begun.is_ok()) return end_with(job, begun, false);
  if (!job->shown->stored.manifest.is_file()) return show_name(job, Status::ok());
  job->shown->as == job->file.path ? commit_shown(job) : copy_aside(job);
}

void TierCopier::Impl::commit_shown(const std::shared_ptr<Job>& job) {
  auto commit = std::make_unique<ShownCommit>();
  commit->done = [self = shared_from_this(), job](const Status& status) {
    // Not on the thread of the commit, which must not be made to wait.
    self->post([job, status](Impl& impl) { impl.show_name(job, status); });
  };
  commit->request.kind = ControlRequest::Kind::kCommit;
  commit->request.owner = commit.get();
  commit->request.complete = [](ControlRequest& request, const Status& status) {
    const std::unique_ptr<ShownCommit> ended(static_cast<ShownCommit*>(request.owner));
    ended->done(status);
  };
  File& file = *job->shown->created.file;
  file.control(commit.release()->request);
}

Status TierCopier::Impl::begin_to_show(Job& job) {
  Shown& shown = *job.shown;
  TierManifest manifest = shown.stored.manifest;
  const std::string as(without_slash(shown.as));
  FPFS_RETURN_IF_ERROR(RestoredTree::check_path(as));
  FPFS_ASSIGN_OR_RETURN(shown.directory, shown_.open_parent(as, shown.name));
  shown.aside_name = shown.aside.substr(shown.aside.rfind('/') + 1);
  if (!manifest.is_file()) return Status::ok();
  manifest.path = as;
  manifest.content.clear();  // it follows when somebody reads it, as that of large files does
  FPFS_ASSIGN_OR_RETURN(shown.created, shown_.begin_file(shown.directory.get(), manifest));
  TierManifest described;
  FPFS_RETURN_IF_ERROR(describe(shown.created.node.handle.get(), described));
  // What is kept beside its own path is this array's from then on.
  TierNote note = note_of_theirs(shown.stored, shown.as, attributes_of(described));
  note.file_id = shown.created.file->info().file_id;
  note.sequence = 1;
  note.is_others = shown.as == job.file.path;
  job.note = note;
  if (note.is_others) FPFS_RETURN_IF_ERROR(shown.created.file->set_note(ChunkSource::kOthersAttribute, {}));
  if (shown.replaces) FPFS_RETURN_IF_ERROR(goes(*shown.created.file, shown.created.file->info().sequence, shown.aside));
  return shown.created.file->set_note(TierNote::kAttribute, encode_note(note));
}

void TierCopier::Impl::show_name(const std::shared_ptr<Job>& job, const Status& committed) {
  const Status named = committed.is_ok() ? give_name(job) : committed;
  const std::shared_ptr<Shown> shown = std::move(job->shown);
  if (named.code() == StatusCode::kExists || named.code() == StatusCode::kBusy)
    return end_job(job, is_vacant(find(job->file.path), job->file.path) ? Ending::kFails : Ending::kMoved, named);
  if (!named.is_ok()) return end_with(job, named, false);
  shown_.tell(shown->directory.get(), shown->name);
  {
    const MutexLock lock(mutex_);
    if (shown->stored.manifest.is_file()) ++counted_.files_shared;
  }
  if (shown->as == job->file.path) {
    job->file.inode = 0;
    job->file.sequence = 0;
    return end_job(job, Ending::kIsCopied);
  }
  job->note = {};
  // Before what it was a copy of is replaced.
  if (const Status synced = store_.sync_directory(shown->directory.get()); !synced.is_ok())
    return end_with(job, synced, false);
  if (!shown->stored.manifest.is_file()) {
    const MutexLock lock(mutex_);
    if (!add({0, shown->as, 0, 0, now_ns()})) scan_is_due_ = true;
  }
  end_job(job, Ending::kMoved);
}

// kExists, kBusy: somebody was faster.
Status TierCopier::Impl::give_name(const std::shared_ptr<Job>& job) {
  Shown& shown = *job->shown;
  const TierManifest& manifest = shown.stored.manifest;
  const Handle directory = shown.directory.get();
  const Silence silence(*this, {std::string(without_slash(shown.as)), shown.aside});
  const std::string& name = shown.replaces ? shown.aside_name : shown.name;
  if (S_ISDIR(manifest.mode)) {
    FPFS_RETURN_IF_ERROR(shown_.make_directory(directory, name));
    FPFS_ASSIGN_OR_RETURN(const Handle opened, store_.storage().open_at(directory, name, kToList));
    const ScopedHandle made(store_.storage(), opened);
    FPFS_RETURN_IF_ERROR(shown_.describe(made.get(), manifest));
    TierManifest described;
    FPFS_RETURN_IF_ERROR(describe(made.get(), described));
    job->note = note_of_theirs(shown.stored, job->file.path, attributes_of(described));
    return note_on(made.get(), job->note);
  }
  if (manifest.is_file()) {
    FPFS_RETURN_IF_ERROR(store_.link(shown.created.node.handle.get(), directory, name));
  } else {
    FPFS_RETURN_IF_ERROR(shown_.make_node(directory, name, manifest));
    FPFS_ASSIGN_OR_RETURN(const Store::Node node, store_.lookup(directory, name));
    TierManifest described;
    FPFS_RETURN_IF_ERROR(describe(node.handle.get(), described));
    job->note = note_of_theirs(shown.stored, job->file.path, attributes_of(described));
    if (shown.as == job->file.path) FPFS_RETURN_IF_ERROR(note_on(node.handle.get(), job->note));
  }
  if (!shown.replaces) return Status::ok();
  const bool goes = !shown.keeps && shown.over.file != nullptr;
  if (goes) FPFS_RETURN_IF_ERROR(this->goes(*shown.over.file, shown.over.sequence, shown.aside));
  const Status exchanged = store_.rename(directory, name, directory, shown.name, RENAME_EXCHANGE);
  if (!exchanged.is_ok()) {
    static_cast<void>(store_.unlink(directory, name));
    return exchanged.code() == StatusCode::kNotFound ? Status::error(StatusCode::kBusy, exchanged.message())
                                                     : exchanged;
  }
  // What had the name has the other one now.
  const Result<Store::Node> old = store_.lookup(directory, name);
  if (!old.is_ok()) return old.status();
  const bool is_file = S_ISREG(old->attributes.st_mode);
  const bool is_same_file = shown.over.file != nullptr && shown.over.file->inode() == old->attributes.st_ino &&
                            shown.over.file->content_since() == shown.over.content_since;
  TierManifest node;
  const bool is_same_node = !is_file && describe(old->handle.get(), node).is_ok() && shown.over.note.has_value() &&
                            shown.over.note->attributes == attributes_of(node);
  shown.over.file = nullptr;
  const bool is_kept = shown.keeps || !(is_same_file || is_same_node);
  if (is_kept && goes) FPFS_RETURN_IF_ERROR(stays(old->handle.get()));
  if (!is_kept) return store_.unlink(directory, name);
  shown_.tell(directory, name);
  TierWaiting kept{is_file ? old->attributes.st_ino : 0, shown.aside, 0, 0, now_ns()};
  if (!shown.keeps)
    log(LogLevel::kWarning, "tier: {} was changed here while another node's came: ours is kept as {}", shown.as,
        shown.aside);
  const MutexLock lock(mutex_);
  if (!shown.keeps) ++counted_.conflicts;
  if (!add(std::move(kept))) scan_is_due_ = true;
  return Status::ok();
}

}  // namespace fpfs
