// Which type each tensor of a model gets: a mixture, and what a user sets for single tensors, as in llama-quantize.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/quant_mix.h"
#include "text/tokenizer/pattern.h"

namespace ibid {

struct TypeRules {
  QuantMix mix = QuantMix::kQ4_K_M;
  bool is_pure = false;        // the mixture's base type for all matrices
  bool leaves_output = false;  // output.weight keeps its own type
  std::optional<DType> output, embedding;
  // Of the tensors whose names an expression matches anywhere; the first that matches counts. PCRE2 with a bound on its
  // steps: an expression that takes more matches no tensor.
  struct Named {
    Pattern pattern;
    DType dtype;
  };
  std::vector<Named> named;
};

// "attn_v=q8_0": the expression and the type after its last '='.
Result<TypeRules::Named> read_named_type(std::string_view text);
// A type that quantize writes, by name in any letter case.
Result<DType> read_target_type(std::string_view name);

// The type of a matrix regardless of its rows' length, and the type it gets (mixed_dtype). Of what a user sets the
// embedding's and the output's type go first, then the named; none but the first two apply to a mixture of floats.
DType wished_dtype(const TypeRules& rules, const MixedMatrix& matrix);
DType fitting_dtype(const TypeRules& rules, const MixedMatrix& matrix);
// Of few bits, the types whose codes are chosen badly without an importance matrix: IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS.
// Error: a matrix of a layer gets one and has no importance.
Status check_importance(std::string_view name, DType dtype, bool has_importance);
// Whether it keeps its own.
bool is_left(const TypeRules& rules, std::string_view name);

}  // namespace ibid
