// The numbers that a schema allows, as texts without exponents.
#pragma once

#include <optional>
#include <vector>

#include "sample/grammar/code_dfa.h"
#include "sample/grammar/schema_value.h"

namespace ibid::grammar {

struct NumberLimit {
  Decimal value;
  bool is_exclusive = false;
};

struct NumberRules {
  bool is_integer = false;   // only integers
  bool is_fraction = false;  // none of them
  std::optional<NumberLimit> low, high;
  std::vector<Decimal> multiples, no_multiples;
  std::vector<Decimal> excluded;

  bool is_free() const {
    return !is_integer && !is_fraction && !low && !high && multiples.empty() && no_multiples.empty() &&
           excluded.empty();
  }
  void at_least(NumberLimit limit);
  void at_most(NumberLimit limit);
  bool allows(const Decimal& number) const;
  bool is_empty() const;  // by its limits
};

// Why multiples of it cannot be enforced, if they cannot.
Status multiples_can_be_held(const Decimal& divisor);

Result<CodeDfa> number_texts(const NumberRules& rules, Fuel& fuel);

}  // namespace ibid::grammar
