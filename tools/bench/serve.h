// What the filesystems that fastpersistfs is compared with have in common: mounting, and libfuse's own multi-threaded
// loop until they are unmounted.
#pragma once

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include <string>

namespace fpfs::bench {

// The exit status of the program: 0 after an unmount, else 1 (libfuse has said why). `io`, if any: how requests are read.
inline int serve(std::string program, std::string options, const fuse_lowlevel_ops& table, const char* mount_point,
                 const fuse_custom_io* io = nullptr) {
  std::string dash_o = "-o";
  char* words[] = {program.data(), dash_o.data(), options.data(), nullptr};
  fuse_args arguments = FUSE_ARGS_INIT(3, words);
  fuse_session* session = fuse_session_new(&arguments, &table, sizeof table, nullptr);
  fuse_opt_free_args(&arguments);
  if (session == nullptr) return 1;
  int result = 1;
  if (fuse_set_signal_handlers(session) == 0 && fuse_session_mount(session, mount_point) == 0 &&
      (io == nullptr || fuse_session_custom_io(session, io, fuse_session_fd(session)) == 0)) {
    fuse_loop_config* config = fuse_loop_cfg_create();
    result = fuse_session_loop_mt(session, config) == 0 ? 0 : 1;
    fuse_loop_cfg_destroy(config);
    fuse_session_unmount(session);
  }
  fuse_remove_signal_handlers(session);
  fuse_session_destroy(session);
  return result;
}

}  // namespace fpfs::bench
