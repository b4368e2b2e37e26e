// Calls of an ObjectStore that wait for their answer.
#pragma once

#include <future>
#include <memory>
#include <utility>

#include "engine/base/status.h"

namespace fpfs::test {

// wait_for<Result<X>>([&](auto done) { store.head(key, done); })
template <typename Answer, typename Start>
Answer wait_for(Start start) {
  auto promise = std::make_shared<std::promise<Answer>>();
  std::future<Answer> answer = promise->get_future();
  start([promise](Answer given) { promise->set_value(std::move(given)); });
  return answer.get();
}

}  // namespace fpfs::test
