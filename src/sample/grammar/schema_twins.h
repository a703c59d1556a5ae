// Equal schemas at several places of a document, which generators of schemas often leave: they become one rule. Members
// that do not constrain values (title, description and the like) may differ.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "sample/grammar/schema_shape.h"

namespace ibid::grammar {

class SchemaTwins {
 public:
  explicit SchemaTwins(Fuel& fuel) : fuel_(fuel), held_(fuel) {}
  // The first requested schema that equals this one, member for member; references alike.
  const Value* first_of(const Value* schema);
  Conjunction first_of(const Conjunction& conjunction);

 private:
  uint64_t hash_of(const Value& value);

  Fuel& fuel_;
  Held held_;
  std::unordered_map<const Value*, uint64_t> hashes_;  // of values within
  std::unordered_map<const Value*, const Value*> firsts_;
  std::unordered_multimap<uint64_t, const Value*> by_hash_;
};

}  // namespace ibid::grammar
