// Reads a file from end to end, and throws away what comes: chunks that lay in the copy only are on the members then, or
// on their way (engine/file/healing.h). What is local already is read, too.
//
// `done` is called once, without locks: on a thread of the executor, which outlives that, or inside the call.
#pragma once

#include <functional>
#include <memory>

#include "engine/base/status.h"
#include "engine/file/file.h"
#include "engine/io/executor.h"

namespace fpfs {

void fetch_content(Executor& executor, const std::shared_ptr<File>& file, std::function<void(const Status&)> done);

}  // namespace fpfs
