// Copier: a program that copies committed files to another store. It holds versions of files while the clients go on
// with them, reads each of them now and then, and lets go of it some time; or the power goes first, or the mount ends.
//
// What a version holds is one of those contents that the last commit may have made durable when it was held, by the
// Model; and the same ones every time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/file/committed_version.h"
#include "tests/crash/process.h"

namespace fpfs::crash {

struct HeldVersion {
  std::unique_ptr<CommittedVersion> version;
  std::shared_ptr<File> file;
  std::shared_ptr<FileModel> model;
  uint64_t inode = 0;
  FileModel::Contents contents;  // it is one of these
  std::optional<Content> seen;   // and showed this one
  // Of a planted mistake: what it needs to be read without being held.
  std::optional<FileImage> image;
};

class Copier {
 public:
  Copier(Session& session, Machine& machine)
      : session_(session), machine_(machine), random_(session.world.random().next()) {}

  // Looks so many times for something to do. True at an orderly end; versions may be held then.
  Task<bool> run(unsigned looks);
  // A commit is durable (Store::on_commit).
  void told(uint64_t inode, uint64_t sequence);
  // False when none is held.
  bool let_go();
  void let_go_of(uint64_t inode);
  bool holds() const { return !held_.empty(); }
  // Readings of what the file no longer was.
  uint64_t old_versions_read() const { return old_versions_read_; }

 private:
  using Held = std::shared_ptr<HeldVersion>;

  // False when the power went.
  bool open_and_hold();
  Held hold(const std::shared_ptr<File>& file, uint64_t inode);
  Task<bool> read(Held held);
  Task<Status> read_chunks(const CommittedVersion& by, const FileImage& image, Content& content);
  void compare(HeldVersion& held, Content&& content);

  Session& session_;
  Machine& machine_;
  SimRandom random_;
  std::vector<Held> held_;
  std::map<uint64_t, uint64_t> told_;  // the last commit of each file
  uint64_t old_versions_read_ = 0;
};

}  // namespace fpfs::crash
