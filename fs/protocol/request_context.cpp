#include "fs/protocol/request_context.h"

namespace fpfs {
namespace {

thread_local RequestContext* t_current = nullptr;

}  // namespace

RequestContext& RequestContext::current() {
  return *t_current;
}

void RequestContext::set_current(RequestContext* context) {
  t_current = context;
}

}  // namespace fpfs
