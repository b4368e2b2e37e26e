// Client: one program that saves, changes, renames and removes its own files through the engine, as programs do through
// the mount, while the Model is told what it did and what was promised to it. Several run interleaved.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "engine/io/sim/sim_environment.h"
#include "engine/store/store.h"
#include "tests/crash/calls.h"
#include "tests/crash/model.h"
#include "tests/crash/task.h"

namespace fpfs::crash {

// What the clients of one mount share.
struct Session {
  SimEnvironment& world;
  Store& store;
  Scheduler& scheduler;
  Model& model;
  StoreOptions::Durable durable = StoreOptions::Durable::kClose;
  // Commits that the client did not ask for may happen (background commits, sync of everything): every moment between
  // two of its calls may be a consistent point.
  bool any_point = false;
  uint64_t largest_file = 0;
  // Writes to objects are lost or land elsewhere: what is read may turn out to be damaged.
  bool drives_lie = false;
  std::array<std::string, 3> directory_names = {".", "d1", "d2"};
  std::array<Handle, 3> directories = {kNoHandle, kNoHandle, kNoHandle};
  std::string failure;  // the first thing that was wrong, in a sentence

  void fail(const std::string& what) {
    if (failure.empty()) failure = what;
  }
  bool is_damage(const Status& status) const {
    return drives_lie && (status.code() == StatusCode::kCorruption || status.code() == StatusCode::kIoError);
  }
  // True when the call went well. An error is wrong unless the power went, or the drives lie.
  bool good(const Status& status, const std::string& what) {
    if (!status.is_ok() && !world.is_off() && !is_damage(status))
      fail(what + " failed without a reason: " + status.message());
    return status.is_ok();
  }
};

class Client {
 public:
  Client(Session& session, unsigned number)
      : session_(session), random_(session.world.random().next()), number_(number) {}
  // Does random chores until the power goes. True at an orderly end.
  Task<bool> run(unsigned chores);

 private:
  struct OpenFile {
    std::shared_ptr<File> file;
    std::shared_ptr<FileModel> model;
    uint64_t inode = 0;
    Model::Operation opened_at = 0;
  };
  struct Place {
    size_t directory = 0;
    std::string name;
    std::string path;  // for the model
  };
  Place random_place();
  bool exists(const Place& place) const { return session_.model.inode_at(place.path) != Model::kAbsent; }
  uint64_t random_length();
  Content make_data(size_t length);

  // Chores; false when the power went.
  Task<bool> save(Place place);
  Task<bool> save_and_rename(Place place);
  Task<bool> change_in_place(Place place);
  Task<bool> resize(Place place);
  Task<bool> append_small(Place place);
  Task<bool> save_unnamed(Place place);
  Task<bool> keep_committing(Place place);
  Task<bool> exchange(Place place);
  Task<bool> link_and_unlink(Place place);
  Task<bool> remove(Place place);
  Task<bool> synchronize(Place place);

  // Steps of chores.
  bool open_existing(const Place& place, OpenFile* out);
  bool open_or_create(const Place& place, OpenFile* out);
  bool create(const Place& place, OpenFile* out);
  Task<bool> write(OpenFile& file, uint64_t offset, size_t length);
  Task<bool> write_sequentially(OpenFile& file, uint64_t length);
  Task<bool> truncate(OpenFile& file, uint64_t size);
  Task<bool> punch(OpenFile& file, uint64_t offset, uint64_t length);
  Task<bool> read_back(OpenFile& file);
  Task<bool> commit(OpenFile& file, bool closing);
  Task<bool> commit_while_writing(OpenFile& file);
  Task<bool> close(OpenFile& file);
  Task<bool> rename(const Place& from, const Place& to, unsigned flags);
  Task<bool> publish(Place temporary, Place place);
  bool sync_directory(size_t directory);
  void changed(OpenFile& file, const Content& content);
  void committed(const OpenFile& file, size_t version, Model::Operation names);

  Session& session_;
  SimRandom random_;
  const unsigned number_;
  unsigned temporary_count_ = 0;
};

}  // namespace fpfs::crash
