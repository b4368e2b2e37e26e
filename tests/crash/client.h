// Client: some programs that save, change, rename and remove their own files through the engine, as programs do through
// the mount, while the Model is told what they did and what was promised to them. Several run interleaved.
#pragma once

#include <string>
#include <vector>

#include "tests/crash/process.h"

namespace fpfs::crash {

class Client {
 public:
  Client(Session& session, Machine& machine, unsigned number)
      : session_(session),
        machine_(machine),
        random_(session.world.random().next()),
        number_(number),
        self_(machine.start()) {}
  // Does random chores until the power goes. True at an orderly end.
  Task<bool> run(unsigned chores);

 private:
  struct Place {
    size_t directory = 0;
    std::string name;
    std::string path;  // for the model
  };
  Place random_place();
  bool exists(const Place& place) const { return session_.model.inode_at(place.path) != Model::kAbsent; }
  uint64_t random_length();
  Content make_data(size_t length, uint64_t offset = 0);
  Content make_shared_data(size_t length, uint64_t offset) const;
  bool shares_content() const { return session_.options.dedup != StoreOptions::Dedup::kOff; }

  // Chores; false when the power went.
  Task<bool> save(const Place& place);
  Task<bool> save_once(const Place& place);
  Task<bool> save_and_rename(const Place& place);
  Task<bool> change_in_place(const Place& place);
  Task<bool> resize(const Place& place);
  Task<bool> append_small(const Place& place);
  Task<bool> append_by_scripts(const Place& place);
  Task<bool> save_unnamed(const Place& place);
  Task<bool> keep_committing(const Place& place);
  Task<bool> exchange(const Place& place);
  Task<bool> link_and_unlink(const Place& place);
  Task<bool> remove(const Place& place);
  Task<bool> synchronize(const Place& place);
  Task<bool> sync_everything(bool* all = nullptr);
  Task<bool> keep_log(const Place& place);
  Task<bool> change_attributes(const Place& place);
  Task<bool> share(const Place& place);
  Task<bool> take_over(const Place& place);

  // Steps of chores.
  // `is_settled`: nobody is in the middle of changing its size.
  bool open_existing(const Place& place, OpenFile* out, const Machine::Mode& mode, bool is_settled = true);
  bool open_or_create(const Place& place, OpenFile* out);
  bool create(const Place& place, OpenFile* out);
  Machine::Mode random_mode();
  Task<bool> write(const OpenFile& file, uint64_t offset, size_t length);
  Task<bool> write_sequentially(const OpenFile& file, uint64_t length);
  Task<bool> truncate(const OpenFile& file, uint64_t size);
  Task<bool> punch(const OpenFile& file, uint64_t offset, uint64_t length);
  Task<bool> read_back(const OpenFile& file);
  Task<bool> commit(const OpenFile& file);
  Task<bool> commit_while_writing(const OpenFile& file);
  Task<bool> close(const OpenFile& file);
  Task<bool> run_child(const OpenFile& file);
  Task<bool> redirect(OpenFile file);
  Task<bool> die();
  Task<bool> sync_by_reader(const Place& place);
  Task<bool> open_again(const Place& place);
  Task<bool> share_once(const Place& place, std::vector<Process>& processes, uint64_t inode, unsigned& forks);
  Task<bool> make_small_files();
  Task<bool> rename(const Place& from, const Place& to, unsigned flags);
  Task<bool> publish(const Place& temporary, const Place& place);
  bool sync_directory(size_t directory);

  Session& session_;
  Machine& machine_;
  SimRandom random_;
  uint64_t stream_salt_ = 0;
  const unsigned number_;
  Process self_;
  unsigned temporary_count_ = 0;
};

}  // namespace fpfs::crash
