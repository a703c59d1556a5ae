#include "format/type_rules.h"

#include <string>
#include <utility>

#include "base/quoted.h"
#include "tensor/quantise.h"

namespace ibid {

Result<DType> read_target_type(std::string_view name) {
  const std::optional<DType> dtype = dtype_from_name(name);
  if (dtype && can_quantise(*dtype)) return *dtype;
  std::string known;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto one = static_cast<DType>(i);
    if (can_quantise(one)) known += (known.empty() ? "" : ", ") + std::string(traits(one).name);
  }
  return invalid("unknown type " + in_quotes(name) + "; expected one of " + known);
}

Result<TypeRules::Named> read_named_type(std::string_view text) {
  const size_t at = text.rfind('=');
  if (at == std::string_view::npos || at == 0) {
    return invalid("expected REGEX=TYPE, as attn_v=q8_0, not " + in_quotes(text));
  }
  ASSIGN_OR_RETURN(const DType dtype, read_target_type(text.substr(at + 1)));
  Result<Pattern> pattern = Pattern::compile(text.substr(0, at));
  if (!pattern) return invalid(in_quotes(text.substr(0, at)) + " has " + pattern.error().message);
  return TypeRules::Named{*std::move(pattern), dtype};
}

DType wished_dtype(const TypeRules& rules, const MixedMatrix& m) {
  const bool is_embedding = m.name == "token_embd.weight" || m.name == "per_layer_token_embd.weight";
  if (rules.embedding && is_embedding) return *rules.embedding;
  if (rules.output && (m.name == "output.weight" || (m.tied_embedding && m.name == "token_embd.weight"))) {
    return *rules.output;
  }
  const DType base = quant_mix_base(rules.mix);
  if (!is_quantised(base)) return base;
  for (const TypeRules::Named& named : rules.named) {
    Pattern::Budget budget = Pattern::Budget::of_text(m.name.size());
    Pattern::Found found;
    if (named.pattern.find(m.name, false, 0, budget, found)) return named.dtype;
  }
  return rules.is_pure ? base : wished_dtype(rules.mix, m);
}

DType fitting_dtype(const TypeRules& rules, const MixedMatrix& m) {
  return fitting_dtype(wished_dtype(rules, m), m.row_len);
}

Status check_importance(std::string_view name, DType dtype, bool has_importance) {
  const bool needs =
      dtype == DType::kIQ2_XXS || dtype == DType::kIQ2_XS || dtype == DType::kIQ2_S || dtype == DType::kIQ3_XXS;
  if (!needs || has_importance || !name.starts_with("blk.")) return {};
  return invalid(in_quotes(name) + " would be " + std::string(traits(dtype).name) +
                     ", which needs an importance matrix with its inputs; `ibid imatrix` makes one for --imatrix",
                 "--imatrix");
}

bool is_left(const TypeRules& rules, std::string_view name) { return rules.leaves_output && name == "output.weight"; }

}  // namespace ibid
