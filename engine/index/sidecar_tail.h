// What to make of bytes after the last whole record: the torn tail that a power cut leaves, or damage to something that
// was committed. Internal to engine/index.
#pragma once

#include <optional>

#include "engine/index/sidecar_log.h"

namespace fpfs::sidecar {

// `end` is where the last whole record of `file_id` ends (or the header, when there is none); the file goes on.
// `last_trailer` is the valid trailer at the end of the file, if there is one. Ok: a torn tail, to be ignored.
// kCorruption: damage; the message names the offsets.
Status judge_tail(SidecarLog& log, FileId file_id, SidecarOffset end, const std::optional<Trailer>& last_trailer);

// The header does not decode. Ok: the first commit was cut short, the file is as empty as before. Otherwise `failure`.
Status judge_header(SidecarLog& log, const Status& failure, const std::optional<Trailer>& last_trailer);

}  // namespace fpfs::sidecar
