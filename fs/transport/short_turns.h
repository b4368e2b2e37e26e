// Threads that answer requests ask the scheduler for short turns: who asked waits for them to run.
#pragma once

namespace fpfs {

// The calling thread gets as much of a processor as before, in turns of 0.1 ms: when it is woken it goes before a thread
// whose turn is longer, where it would wait for the end of that turn (3 ms on two processors). Facts: EEVDF's
// PREEMPT_SHORT and sched_attr::sched_runtime of SCHED_OTHER (kernel/sched/fair.c, kernel/sched/syscalls.c), both since
// Linux 6.12. Before that, and where it is refused, nothing changes. Threads that it starts have the same turns.
void ask_for_short_turns();

}  // namespace fpfs
