// The commit of content that lies elsewhere than before and is the same, and who is to be told of it. A close, so that
// space that was released is given back; it is left alone when somebody has begun to change the file.
#pragma once

#include <memory>
#include <vector>

#include "engine/file/file.h"

namespace fpfs {

struct File::MoveCommit {
  explicit MoveCommit(std::shared_ptr<File> of);

  ControlRequest request;  // its end destroys this
  const std::shared_ptr<File> file;
  size_t healed = 0;  // chunks that are on their members again
  size_t moved = 0;   // that are on other members
  std::vector<Healing::Told> told;
};

}  // namespace fpfs
