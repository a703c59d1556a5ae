#include "engine/state/scope_of.h"

#include <string>

#include "kernels/arithmetic_version.h"
#include "model/adapters.h"
#include "worker/forward_pass.h"

namespace ibid {

CacheScope scope_of(const Request& request, const ModelFacts& facts, KvTypes kv_dtype) {
  const bool is_salted = !request.cache_salt.empty();
  return {.arithmetic = arithmetic_id(),
          .model = facts.digest,
          .adapter = request.adapter ? request.adapter->adapter->digest() : std::string(),
          .kv_dtype = kv_dtype.name(),
          .rope = facts.rope,
          .salt = is_salted ? request.tenant + '\n' + request.cache_salt : request.tenant};
}

}  // namespace ibid
