// A thread as the engine starts them: with a name that top and gdb show, and with all signals blocked, so that signals
// sent to the process reach the threads of the program that embeds the engine.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <string>
#include <thread>
#include <utility>

namespace fpfs {

// `name`: the kernel keeps 15 characters of it.
template <typename Body>
std::thread start_thread(const std::string& name, Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited by the new thread
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name.substr(0, 15).c_str());
  return thread;
}

}  // namespace fpfs
