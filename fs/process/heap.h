// Heap: what the daemon allocates beside its pools (open files, their indexes, requests) goes back to the system when
// it is not used any more. glibc keeps what was freed, in as many arenas as threads have met, and gives back only what
// lies at the end of one.
//
// Thread safety: configure() before there are threads; give_back() from one thread.
#pragma once

#include <cstddef>

namespace fpfs {

class Heap {
 public:
  // Few arenas, and large pieces on pages of their own: freed, they are gone.
  static void configure();
  // Gives back what is free, when that is worth the work. To be called now and then.
  void give_back();

 private:
  size_t kept_ = 0;  // what was free all the same behind the last time
};

}  // namespace fpfs
