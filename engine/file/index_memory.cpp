#include "engine/file/index_memory.h"

#include <cerrno>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/base/ranges.h"

namespace fpfs {

Status IndexMemory::refuse(uint64_t entries) {
  const Status status =
      Status::from_errno(
          ENOMEM, fmt::format("add {} to the {} of all open files", format_count(entries, "chunk"), entries_.load()))
          .with_context(fmt::format(
              "indexes may have {} chunks in memory; close files, or mount with more buffer_memory", entries_max_));
  log_about("no memory for indexes", LogLevel::kWarning, "{}", status.message());
  return status;
}

bool IndexMemory::Copies::take(IndexMemory& memory, uint64_t count) {
  constexpr uint64_t kPart = 8;
  const uint64_t others = memory.copies_.fetch_add(count);
  if (others > 0 && others + count > memory.entries_max_ / kPart) {
    memory.copies_.fetch_sub(count);
    return false;
  }
  memory_ = &memory;
  count_ = count;
  return true;
}

IndexMemory::Copies::~Copies() {
  if (memory_ != nullptr) memory_->copies_.fetch_sub(count_);
}

}  // namespace fpfs
