// Machine: the processes of a simulated machine, their descriptors and mappings, as the kernel and the mount (fs/) show
// them to the engine; and what the engine promises to each of them, told to the Model.
//
//   open, dup, fork, exec, a descriptor that is passed on    an open file description lives while a descriptor or a
//                                                            mapping of it does, in whatever process
//   every close of a descriptor    a FLUSH with the owner of that process: exec, exit and death close like close(2)
//   that of who has only emptied   nothing, while it or a child has another descriptor (fs/operations/descriptor_holders.h)
//   the file
//   the last one                   also the end of the description (fs/operations/open.cpp, end_writer)
//   a store to a mapping           a dirty page of the file, which comes back later through any description that can be
//                                  mapped, and before each FLUSH, fsync, read and change of the file
//
// The Model is told what a crash may show: a close by a process that wrote, and an fsync, are consistent points; so is
// any moment when all who are in the middle of writing are trickles. Where it cannot be known what the engine has taken
// something for, the Model allows both, and expects what is certain.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/crash/calls.h"
#include "tests/crash/session.h"

namespace fpfs::crash {

// An open file description.
struct Description : std::enable_shared_from_this<Description> {
  ~Description();
  class Machine* machine = nullptr;  // while it is open
  std::shared_ptr<File> file;
  std::shared_ptr<FileModel> model;
  uint64_t inode = 0;
  Model::Operation opened_at = 0;
  std::unique_ptr<Writer> writer;  // null: for reading
  bool is_cached = false;          // writes go through the page cache: they name the process and not the owner
  unsigned descriptors = 0, mappings = 0;
  // Of a planted mistake: writes that were received, and how many of them when a close last came.
  uint64_t received = 0, received_at_close = 0;

  std::multiset<uint32_t> holders;  // of its descriptors, by their numbers
  // The last change by each process, as a version of the model; and writes that were not answered.
  std::map<uint32_t, size_t> changes;
  std::map<uint32_t, size_t> emptied;  // the version that a process cut to nothing, having changed nothing before
  std::map<uint32_t, unsigned> under_way;
  bool has_written = false;
  // More than a chunk was written at once, for certain: see Machine::note_written().
  bool is_stream = false;
  bool window_is_certain = true;
  uint64_t window_bytes = 0, window_began_ns = 0;

  bool may_map() const { return writer != nullptr && writer->description().may_map; }
  bool appends() const { return writer != nullptr && writer->description().appends; }
};
using OpenFile = std::shared_ptr<Description>;

struct Process {
  struct Descriptor {
    OpenFile description;
    bool close_on_exec = false;
  };
  uint32_t number = 0;
  uint64_t owner = 0;  // of a dead process it comes again
  std::vector<Descriptor> table;
  std::vector<OpenFile> mappings;
};

// A write that was asked for and may not have been answered.
struct WriteUnderWay {
  WriteUnderWay(Scheduler& scheduler, OpenFile through, Content bytes, uint64_t offset)
      : file(std::move(through)), data(std::move(bytes)), call(scheduler, *file->file, offset, data) {}
  OpenFile file;
  Content data;
  WriteCall call;
  uint32_t process = 0;
  uint64_t began_ns = 0;
  size_t version = 0;
};

// What another process does with a file at the moment at which a signal kills its saver.
struct Beside {
  Process& process;
  OpenFile file;  // none: it opens it then
  std::function<bool(OpenFile*)> open;
  bool comes_first = false;  // the engine is asked for that before it is told of the death
  bool replaces = false;     // O_TRUNC
  uint64_t offset = 0;
  Content data;          // none: it does not write
  bool is_done = false;  // the saver died in the middle of a replacement, and this was done
  Status status;         // what it was told

  bool changes() const { return is_done && (replaces || !data.empty()); }
  Content change(Content content) const;  // what it makes of it
};

class Machine {
 public:
  explicit Machine(Session& session) : session_(session) {}
  ~Machine();

  Process start();
  Process fork(const Process& parent);
  // The new program keeps the descriptors that are not close-on-exec.
  Task<bool> exec(Process& process);
  // Its exit, or its death by a signal, and what comes at that moment.
  Task<bool> end(Process& process, bool is_killed, Beside* beside = nullptr);

  struct Mode {
    bool writes = true, reads = false, appends = false, is_new = false, close_on_exec = false;
  };
  OpenFile open(Process& process, std::shared_ptr<File> file, uint64_t inode, Model::Operation opened_at,
                const Mode& mode);
  void give(Process& process, const OpenFile& file, bool close_on_exec = false);  // dup, or passed on by another
  Task<bool> close(Process& process, const OpenFile& file);                       // one descriptor of it
  // A thread writes and another closes a descriptor of the same description, while a commit is under way.
  Task<bool> close_beside_write(Process& process, const OpenFile& file, uint64_t offset, Content&& data);

  std::unique_ptr<WriteUnderWay> begin_write(Process& process, const OpenFile& file, uint64_t offset, Content data);
  Task<bool> end_write(WriteUnderWay& write);
  Task<bool> write(Process& process, const OpenFile& file, uint64_t offset, Content&& data);
  Task<bool> truncate(Process& process, const OpenFile& file, uint64_t size);
  Task<bool> punch(Process& process, const OpenFile& file, uint64_t offset, uint64_t length);
  Task<bool> fsync(const OpenFile& file);
  // What a program sees of the file.
  Task<bool> read_all(const OpenFile& file, Content* content);

  void map(Process& process, const OpenFile& file);
  Task<bool> unmap(Process& process, const OpenFile& file);
  void store(const OpenFile& file, uint64_t offset, Content data);
  Task<bool> write_back(uint64_t inode);

  // The file is being committed by something else than its descriptors (a rename over content).
  void may_be_committed(uint64_t inode);
  // Some of its writers was killed, and the others got an error: it shows its last committed content when all are gone.
  bool has_failed(uint64_t inode) const { return failed_.contains(inode); }
  void reopened(uint64_t inode);
  // Null when nobody has it open.
  std::shared_ptr<File> open_file(uint64_t inode) const;
  // The end of the mount may say so: with durable=fsync, of closes that were told nothing.
  bool has_failures() const { return !failed_.empty() || has_lost_; }
  // How often a file failed so far, also of those that were opened anew since.
  uint64_t failures() const { return failures_; }
  Task<bool> sleep(std::chrono::milliseconds time);
  // A log that stays open is committed without anybody's doing.
  Task<bool> wait_for_trickle(const OpenFile& file);

  // The mount ends under those who have files open (OpenHandles::clear).
  void cut_off();
  // It has ended. `said_busy`: files were left as after a crash. None: it had something else to say.
  void ended(std::optional<bool> said_busy);

 private:
  struct Page {
    uint64_t offset = 0;
    Content data;
  };
  struct State {  // of a file
    std::vector<Description*> open;
    std::vector<Page> dirty;
    std::optional<size_t> mapped;        // the last version that came by a mapping
    size_t covered = 0;                  // versions up to this one may have been committed
    size_t committed = 0;                // and up to this one were
    std::optional<size_t> truncated_at;  // the version that was cut to nothing, since covered
    uint64_t uncommitted_since_ns = 0;   // the first change behind committed
  };
  friend struct Description;
  State& state_of(uint64_t inode) { return *states_.at(inode); }
  uint64_t now_ns();
  void forget(Description& file);

  // The model's side: see the definitions.
  size_t coming(Description& file, Content content, bool may_be_trickle);
  void settle(Description& file, uint32_t process);
  void note_written(WriteUnderWay& write);
  bool is_unfinished(const State& state, const Description& file) const;
  bool others_trickle(const State& state, const Description& changing) const;
  static bool replaces_for_certain(const State& state, const FileModel& model);
  static void commit_begins(State& state, FileModel& model);
  void committed(Description& file, size_t version);

  Task<bool> flush(Process& process, const OpenFile& file, bool dies, Beside* beside);
  Task<bool> flush_killed(Process& process, const OpenFile& file, Beside* beside);
  Task<bool> leave_alone(const OpenFile& file);
  bool is_to_come(const Process& process, const OpenFile& file);
  Task<bool> act(Beside& beside, const FileModel::Contents& before);
  Task<bool> flush_and_commit(Process& process, const OpenFile& file);
  Task<bool> release(const OpenFile& file);
  Task<bool> close_at(Process& process, size_t index, bool dies, Beside* beside);
  Task<bool> look_after_death(const OpenFile& file, bool is_certain);
  Task<bool> look_after_change(const Beside& beside, const FileModel::Contents& before, bool is_given_up);
  static void gave_up(State& state, FileModel& model);
  static Origin origin_of_write(const Process& process, const Description& file);
  static void commit_now(const std::shared_ptr<File>& file);
  bool good(const Status& status, const Description& file, const std::string& what);

  Session& session_;
  bool has_lost_ = false;
  std::set<uint64_t> lost_;  // a loss of these is told to the next fsync
  std::map<uint64_t, std::unique_ptr<State>> states_;
  std::set<OpenFile> open_;
  std::set<uint64_t> failed_;
  uint64_t failures_ = 0;
  std::set<uint64_t> left_;      // at the end: in the middle of being written, for certain
  std::set<uint64_t> trickles_;  // and perhaps
  std::set<uint64_t> owners_;
  std::map<uint32_t, uint32_t> parents_;  // of processes that were forked, while both live
  uint32_t next_process_ = 100;
};

}  // namespace fpfs::crash
