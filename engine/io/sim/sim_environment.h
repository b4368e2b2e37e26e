// SimEnvironment: a whole world for the engine in one thread, driven by a test and decided by one seed.
//
// Whatever the engine starts (transfers on an IoQueue, tasks on the Executor) becomes an event. Nothing happens until
// the test calls step(): it runs one event, chosen at random among those that may run. A transfer takes two: its start
// (prepare(), then the drive takes the data) and its completion. So everything that threads and drives could do in some
// order happens in some order, and the same seed gives the same order.
//
//   SimEnvironment world(seed, options);
//   ... open a Store over world, submit requests, world.run_until([&] { return answered; }) ...
//   world.cut_at(boundary);      // later: the power goes, at a change of the storage or between two steps
//   world.stop();                // every request ends, now with errors
//   store.reset();               // the process is gone
//   world.crash();               // what was not durable is decided; the power is back
//
// The clock is the world's own: it moves with each step, and to the due time of a delayed task when that one runs.
//
// Thread safety: none, except that storage() may be used from other threads.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/io/environment.h"
#include "engine/io/sim/sim_storage.h"

namespace fpfs {

struct SimOptions {
  std::vector<std::string> mount_paths = {"/m0", "/m1", "/m2"};
  // Unset: each in half of the seeds.
  std::optional<SimFilesystem::JournalOrder> journal_order = {};
  std::optional<bool> syncs_own_names = {};  // as SimFilesystem::syncs_own_names
  SimPlantedBug planted = SimPlantedBug::kNone;
};

class SimIoQueue;

class SimEnvironment final : public Environment {
 public:
  explicit SimEnvironment(uint64_t seed, const SimOptions& options = {});
  ~SimEnvironment() override;

  // --- Environment -------------------------------------------------------------------------------------------------
  Storage& storage() override { return storage_; }
  Executor& executor() override { return executor_; }
  Result<std::unique_ptr<IoQueue>> make_queue(MemberIndex member, const QueueSettings& settings) override;
  struct timespec now() override;
  uint64_t random_u64() override { return engine_random_.next(); }
  bool is_simulated() const override { return true; }

  // --- the test's side ---------------------------------------------------------------------------------------------
  SimStorage& sim() { return storage_; }
  SimRandom& random() { return test_random_; }  // for the test's own choices
  // Runs one event. False when there is none.
  bool step();
  // Steps until `done`; false when the world came to rest before, or after kStepsMax steps.
  bool run_until(const std::function<bool()>& done);
  // Steps until nothing is left but delayed tasks.
  void drain();
  // The wall clock is set back; what is due comes as if nothing had happened.
  void turn_clock_back(std::chrono::nanoseconds by);
  size_t events() const { return events_.size(); }
  void cut_at(uint64_t boundary) { storage_.cut_at(boundary); }
  uint64_t boundaries() const { return storage_.boundaries(); }
  bool is_off() const { return storage_.is_off(); }
  // What happens to a process that loses its power or its life: storage calls fail, what was started ends, delayed
  // tasks never run. The engine's objects can be destroyed then.
  void stop();
  // After that: the power comes back (crash() decides what survived), or only the process is gone (kill()). All queues
  // must be gone.
  void crash();
  void kill();

  static constexpr uint64_t kStepsMax = 5'000'000;

 private:
  friend class SimIoQueue;
  struct Event {
    enum class Kind : uint8_t { kTask, kStart, kCompletion } kind = Kind::kTask;
    Executor::Task task;
    uint64_t due_ns = 0;  // of a delayed task; 0: at once
    SimIoQueue* queue = nullptr;
    IoRequest* request = nullptr;
    SimStorage::Transfer transfer;
  };
  class SimExecutor final : public Executor {
   public:
    explicit SimExecutor(SimEnvironment& world) : world_(world) {}
    void post(Task task) override;
    void post_after(std::chrono::milliseconds delay, Task task) override;

   private:
    SimEnvironment& world_;
  };

  void add(Event event) { events_.push_back(std::move(event)); }
  // Index of the event to run next, or events_.size().
  size_t choose(bool with_delayed);
  bool step_one(bool with_delayed);
  void run(size_t index);
  void start(Event event);
  void complete(const Event& event);
  void finish_queue(SimIoQueue& queue);

  SimRandom schedule_random_;
  SimRandom engine_random_;
  SimRandom awaited_random_;
  SimRandom test_random_;
  SimStorage storage_;
  SimExecutor executor_;
  std::vector<Event> events_;
  std::vector<size_t> candidates_;
  uint64_t now_ns_;
  unsigned queues_ = 0;
};

class SimIoQueue final : public IoQueue {
 public:
  SimIoQueue(SimEnvironment& world, unsigned depth) : world_(world), depth_(depth) { ++world_.queues_; }
  ~SimIoQueue() override;
  void submit(IoRequest& request) override;
  bool is_idle() const override;

 private:
  friend class SimEnvironment;
  SimEnvironment& world_;
  const unsigned depth_;
  unsigned on_drive_ = 0;
};

}  // namespace fpfs
