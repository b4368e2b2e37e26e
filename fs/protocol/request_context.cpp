#include "fs/protocol/request_context.h"

namespace fpfs {
namespace {

thread_local RequestContext* t_current = nullptr;

}  // namespace

RequestContext* RequestContext::current() {
  return t_current;
}

RequestContext::Scope::Scope(RequestContext& context) {
  t_current = &context;
}

RequestContext::Scope::~Scope() {
  t_current = nullptr;
}

}  // namespace fpfs
