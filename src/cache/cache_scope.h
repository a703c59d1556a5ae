// CacheScope: everything besides the tokens that a block's bytes depend on, and who may share it (docs/design.md
// section 5, law 5). Two sequences can share blocks only if every field is equal.
#pragma once

#include <cstdint>
#include <string>

namespace ibid {

struct CacheScope {
  std::string arithmetic;  // its name and number
  std::string model;       // digest of the weights and the header
  std::string adapter;     // empty: none
  std::string kv_dtype;
  std::string rope;  // base, scaling and factors, as the model spells them
  std::string salt;  // the tenant's

  // All fields with their lengths, so that no two scopes spell alike. A field that is added does not compile here until
  // it is spelled too.
  std::string spelled() const {
    const auto& [f1, f2, f3, f4, f5, f6] = *this;
    std::string out;
    for (const std::string* field : {&f1, &f2, &f3, &f4, &f5, &f6}) {
      out += std::to_string(field->size()) + ':' + *field;
    }
    return out;
  }
};

// A scope that the prefix tree knows; valid while held.
enum class ScopeId : int32_t { kNone = -1 };

}  // namespace ibid
