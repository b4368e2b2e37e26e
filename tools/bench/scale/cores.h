// The cores of a modelled machine: whoever works holds one and sleeps for as long as the work would take.
//
// All processes of the machine share them, by a file that they map. They are handed out in the order of asking.
//
// Thread safety: all methods from any thread of any process.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace fpfs::scale {

// What is worked at; the accounts are by kind.
enum class Work : unsigned { kCopy, kMove, kHash, kRequest, kSubmit, kClient, kCount };

// Nanoseconds of CLOCK_MONOTONIC.
uint64_t now_ns();
void sleep_until(uint64_t when_ns);

class Cores {
 public:
  // What lies in the file; all zero at first. tools/bench/suite/rows/big_machine.py reads the accounts.
  struct Shared {
    static constexpr uint32_t kTurns = 8192;  // more than threads of one machine
    std::atomic<uint64_t> worked_ns[static_cast<unsigned>(Work::kCount)];
    std::atomic<uint64_t> asked;
    std::atomic<uint64_t> ended;
    std::atomic<uint32_t> turns[kTurns];  // the low bits of a number that may go on, plus one
  };

  // `count` cores; 0: as many as are wanted. The file must exist. Null, with a message on stderr, when it cannot be
  // mapped.
  static std::unique_ptr<Cores> open(const std::string& path, uint32_t count);
  // Waits for a core and holds it for so long.
  void work(Work kind, uint64_t ns);

 private:
  Cores(Shared& shared, uint32_t count) : shared_(shared), count_(count) {}
  void begin();
  void end();

  Shared& shared_;  // mapped until the process ends
  const uint32_t count_;
};

}  // namespace fpfs::scale
