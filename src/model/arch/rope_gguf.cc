#include <cmath>

#include "kernels/math.h"
#include "model/arch/common.h"

namespace ibid::arch {
namespace {

Result<std::vector<double>> factors(const ModelFile& file, const std::string& name) {
  ASSIGN_OR_RETURN(TensorView view, file.tensor(name));
  if (view.rank != 1 || view.dtype != DType::kF32) {
    return invalid("tensor " + in_quotes(name) + " is not a vector of F32 numbers", name);
  }
  const float* values = view.row_as<const float>(0);
  return std::vector<double>(values, values + view.row_len());
}

Result<RopeScaling> scaling_kind(const ModelFile& file, const std::string& key, bool has_factor) {
  if (!file.has_meta(key)) {
    if (!has_factor) return RopeScaling::kNone;
    return invalid("the model gives a RoPE scaling factor but no " + in_quotes(key) + "; linear, yarn or none would do",
                   key);
  }
  ASSIGN_OR_RETURN(std::string name, file.meta_string(key));
  if (name == "none") return RopeScaling::kNone;
  if (name == "linear") return RopeScaling::kLinear;
  if (name == "yarn") return RopeScaling::kYarn;
  if (name == "longrope") return RopeScaling::kLongrope;
  return unsupported("the model's RoPE scaling is " + in_quotes(name) +
                         "; ibid knows none, linear, yarn and longrope, and " + "llama-3 by rope_freqs.weight",
                     key);
}

}  // namespace

Result<RopeConfig> rope_from_gguf(const ModelFile& file, const ModelConfig& config, bool interleaved) {
  const std::string rope_key = config.architecture + ".rope.";
  RopeConfig rope;
  rope.interleaved = interleaved;
  ASSIGN_OR_RETURN(int64_t n_rotated, file.meta_int(rope_key + "dimension_count", config.head_len));
  if (n_rotated < 2 || n_rotated % 2 != 0 || n_rotated > config.head_len) {
    return invalid("the model rotates " + std::to_string(n_rotated) + " of its heads' " +
                       std::to_string(config.head_len) + " values; an even number from 2 to that would do",
                   rope_key + "dimension_count");
  }
  rope.n_pairs = static_cast<int>(n_rotated / 2);
  ASSIGN_OR_RETURN(rope.base, file.meta_float(rope_key + "freq_base", 10000.0));

  const std::string scaling_key = rope_key + "scaling.";
  // The name that files before 2023-11 used for a linear factor.
  if (file.has_meta(rope_key + "scale_linear")) {
    rope.scaling = RopeScaling::kLinear;
    ASSIGN_OR_RETURN(rope.factor, file.meta_float(rope_key + "scale_linear"));
    if (file.has_meta(scaling_key + "type")) {
      return invalid("the model describes its RoPE scaling twice, by scale_linear and scaling.type",
                     rope_key + "scale_linear");
    }
  } else {
    ASSIGN_OR_RETURN(rope.factor, file.meta_float(scaling_key + "factor", 1.0));
    ASSIGN_OR_RETURN(rope.scaling, scaling_kind(file, scaling_key + "type", rope.factor != 1.0));
  }
  ASSIGN_OR_RETURN(rope.original_context, file.meta_int(scaling_key + "original_context_length", 0));
  ASSIGN_OR_RETURN(double attention_factor, file.meta_float(scaling_key + "attn_factor", 1.0));
  ASSIGN_OR_RETURN(double log_multiplier, file.meta_float(scaling_key + "yarn_log_multiplier", 0.0));
  if (log_multiplier != 0) {
    return unsupported(
        "the model's yarn scaling has a log multiplier, which ibid does not know for " + in_quotes(config.architecture),
        scaling_key + "yarn_log_multiplier");
  }
  if (file.find("rope_freqs.weight") != nullptr) {
    ASSIGN_OR_RETURN(rope.divisors, factors(file, "rope_freqs.weight"));
  }
  const bool has_longrope =
      file.find("rope_factors_short.weight") != nullptr || file.find("rope_factors_long.weight") != nullptr;
  // Converters write longrope's factors without naming the kind in scaling.type.
  if (has_longrope && rope.scaling == RopeScaling::kNone) rope.scaling = RopeScaling::kLongrope;
  if (has_longrope && rope.scaling != RopeScaling::kLongrope) {
    return invalid("the model has longrope factors but says that its RoPE scaling is " +
                       std::string(rope_scaling_name(rope.scaling)),
                   scaling_key + "type");
  }
  switch (rope.scaling) {
    case RopeScaling::kNone:
      if (rope.factor != 1.0) {
        return invalid(
            "the model says that it does not scale RoPE but gives a factor of " + std::to_string(rope.factor),
            scaling_key + "factor");
      }
      break;
    case RopeScaling::kLinear:
      if (!file.has_meta(scaling_key + "factor") && !file.has_meta(rope_key + "scale_linear")) {
        return invalid("the model scales RoPE linearly but gives no factor", scaling_key + "factor");
      }
      break;
    case RopeScaling::kYarn: {
      if (!file.has_meta(scaling_key + "factor") || rope.original_context == 0) {
        return invalid("the model scales RoPE by yarn but lacks the factor or the original context length",
                       scaling_key + "original_context_length");
      }
      ASSIGN_OR_RETURN(double extrapolation, file.meta_float(scaling_key + "yarn_ext_factor", 1.0));
      if (extrapolation != 1.0)
        return unsupported("a yarn extrapolation factor other than 1", scaling_key + "yarn_ext_factor");
      ASSIGN_OR_RETURN(rope.beta_fast, file.meta_float(scaling_key + "yarn_beta_fast", 32.0));
      ASSIGN_OR_RETURN(rope.beta_slow, file.meta_float(scaling_key + "yarn_beta_slow", 1.0));
      ASSIGN_OR_RETURN(attention_factor, file.meta_float(scaling_key + "yarn_attn_factor", attention_factor));
      // A file's factor multiplies yarn's own magnitude (model/rope.h).
      if (attention_factor != 1.0)
        rope.magnitude = attention_factor * (1.0 + 0.1 * math::log(std::fmax(rope.factor, 1.0)));
      break;
    }
    case RopeScaling::kLongrope: {
      if (!file.has_meta(scaling_key + "attn_factor") || rope.original_context == 0) {
        return invalid(
            "the model scales RoPE by longrope but lacks the attention factor or the original context length",
            scaling_key + "attn_factor");
      }
      rope.magnitude = attention_factor;
      ASSIGN_OR_RETURN(rope.short_factors, factors(file, "rope_factors_short.weight"));
      ASSIGN_OR_RETURN(rope.long_factors, factors(file, "rope_factors_long.weight"));
      break;
    }
    case RopeScaling::kLlama3:
      break;  // GGUF has the divisors instead
  }
  return rope;
}

}  // namespace ibid::arch
