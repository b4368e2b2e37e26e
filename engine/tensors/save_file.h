// A file that is saved in one step: it has no name until all of it is durable.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "engine/store/store.h"

namespace fpfs {

// Runs `start` with what it is to call at the end, and waits for that: on a condition in a program, by running the world
// in a simulation.
using Answered = std::function<void(const Status&)>;
using Await = std::function<Status(const std::function<void(Answered)>& start)>;

// Makes the file `name`, or replaces the one that is there; its content is the pieces, one after another. Durable on
// return. A failure, or a crash before that, leaves what the name had before; a crash while one replaces the other may
// leave the new one beside it, as ".fastpersist-" and `number`, 16 hex digits.
Status save_file(Store& store, Handle directory, const std::string& name, mode_t mode,
                 std::span<const std::span<const std::byte>> pieces, uint64_t number, const Await& await);

}  // namespace fpfs
