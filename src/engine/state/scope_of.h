// The cache scope of a request's sequences (cache/cache_scope.h).
#pragma once

#include "cache/cache_scope.h"
#include "engine/state/request.h"
#include "kernels/kv_types.h"

namespace ibid {

struct ModelFacts;

// May throw std::bad_alloc.
CacheScope scope_of(const Request& request, const ModelFacts& facts, KvTypes kv_dtype);

}  // namespace ibid
