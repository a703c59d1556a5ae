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
    return invalid("the model gives a RoPE scaling factor but no " + in_quotes(key) + "; expected linear, yarn or none",
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

// The kind of scaling and its factor.
Status read_kind(const ModelFile& file, const std::string& keys, RopeConfig& rope) {
  const std::string old_key = keys + "scale_linear";  // what files before 2023-11 used
  if (file.has_meta(old_key)) {
    rope.scaling = RopeScaling::kLinear;
    ASSIGN_OR_RETURN(rope.factor, file.meta_float(old_key));
    if (!file.has_meta(keys + "scaling.type")) return {};
    return invalid("the model describes its RoPE scaling twice, by scale_linear and scaling.type", old_key);
  }
  const std::string factor_key = keys + "scaling.factor";
  ASSIGN_OR_RETURN(rope.factor, file.meta_float(factor_key, 1.0));
  ASSIGN_OR_RETURN(rope.scaling, scaling_kind(file, keys + "scaling.type", rope.factor != 1.0));
  if (rope.scaling == RopeScaling::kNone && rope.factor != 1.0) {
    return invalid("the model states that it does not scale RoPE but gives a factor of " + std::to_string(rope.factor),
                   factor_key);
  }
  const bool needs_factor = rope.scaling == RopeScaling::kLinear || rope.scaling == RopeScaling::kYarn;
  if (!needs_factor || file.has_meta(factor_key)) return {};
  return invalid("the model scales RoPE by " + std::string(rope_scaling_name(rope.scaling)) + " but gives no factor",
                 factor_key);
}

// `architecture`: its log multiplier, if it has one, is the mscale of all dimensions, beside an mscale of 1.
Status read_yarn(const ModelFile& file, const std::string& architecture, const std::string& keys,
                 double attention_factor, bool is_latent, RopeConfig& rope) {
  if (rope.original_context == 0) {
    return invalid("the model scales RoPE by yarn but lacks its original context length",
                   keys + "original_context_length");
  }
  ASSIGN_OR_RETURN(double extrapolation, file.meta_float(keys + "yarn_ext_factor", 1.0));
  if (extrapolation != 1.0) return unsupported("a yarn extrapolation factor other than 1", keys + "yarn_ext_factor");
  ASSIGN_OR_RETURN(double log_multiplier, file.meta_float(keys + "yarn_log_multiplier", 0.0));
  if (log_multiplier != 0 && architecture != "mistral3" && !is_latent) {
    return unsupported("the model's yarn scaling has a log multiplier, which ibid does not know for " + architecture,
                       keys + "yarn_log_multiplier");
  }
  if (!(log_multiplier >= 0 && log_multiplier <= 1e3)) {
    return invalid(
        "the model's yarn scaling has a log multiplier of " + std::to_string(log_multiplier) + "; expected 0 to 1000",
        keys + "yarn_log_multiplier");
  }
  ASSIGN_OR_RETURN(rope.beta_fast, file.meta_float(keys + "yarn_beta_fast", 32.0));
  ASSIGN_OR_RETURN(rope.beta_slow, file.meta_float(keys + "yarn_beta_slow", 1.0));
  ASSIGN_OR_RETURN(attention_factor, file.meta_float(keys + "yarn_attn_factor", attention_factor));
  // A tenth of mscale_all_dim; mscale is the same in all files, and cosines and sines stay as they are.
  if (is_latent) {
    rope.mscale_all = 10 * log_multiplier;
    rope.magnitude = attention_factor;
    return {};
  }
  // A file's factor multiplies yarn's own magnitude (model/rope.h).
  const double log_factor = math::log(std::fmax(rope.factor, 1.0));
  rope.magnitude = attention_factor * (1.0 + 0.1 * log_factor) / (1.0 + 0.1 * log_multiplier * log_factor);
  return {};
}

Status read_longrope(const ModelFile& file, const std::string& keys, double attention_factor, RopeConfig& rope) {
  if (!file.has_meta(keys + "attn_factor") || rope.original_context == 0) {
    return invalid("the model scales RoPE by longrope but lacks its attention factor or its original context length",
                   keys + "attn_factor");
  }
  rope.magnitude = attention_factor;
  ASSIGN_OR_RETURN(rope.short_factors, factors(file, "rope_factors_short.weight"));
  ASSIGN_OR_RETURN(rope.long_factors, factors(file, "rope_factors_long.weight"));
  return {};
}

}  // namespace

Result<RopeConfig> rope_from_gguf(const ModelFile& file, const ModelConfig& config, bool interleaved) {
  const std::string keys = config.architecture + ".rope.", scaling_keys = keys + "scaling.";
  const int64_t key_len = config.layers.front().key_len;
  const bool is_latent = config.layers.front().mixer == Mixer::kLatent;
  RopeConfig rope;
  rope.interleaved = interleaved;
  ASSIGN_OR_RETURN(int64_t n_rotated, file.meta_int(keys + "dimension_count", key_len));
  if (n_rotated < 2 || n_rotated % 2 != 0 || n_rotated > key_len) {
    return invalid("the model rotates " + std::to_string(n_rotated) + " of its heads' " + std::to_string(key_len) +
                       " values; expected an even number from 2 to that",
                   keys + "dimension_count");
  }
  rope.n_pairs = static_cast<int>(n_rotated / 2);
  ASSIGN_OR_RETURN(rope.base, file.meta_float(keys + "freq_base", 10000.0));
  TRY(read_kind(file, keys, rope));
  ASSIGN_OR_RETURN(rope.original_context, file.meta_int(scaling_keys + "original_context_length", 0));
  ASSIGN_OR_RETURN(double attention_factor, file.meta_float(scaling_keys + "attn_factor", 1.0));
  if (!(attention_factor > 0)) {
    return invalid("the model's RoPE attention factor is not positive", scaling_keys + "attn_factor");
  }
  if (file.find("rope_freqs.weight") != nullptr) {
    ASSIGN_OR_RETURN(rope.divisors, factors(file, "rope_freqs.weight"));
  }
  const bool has_longrope =
      file.find("rope_factors_short.weight") != nullptr || file.find("rope_factors_long.weight") != nullptr;
  // Converters write longrope's factors without naming the kind in scaling.type.
  if (has_longrope && rope.scaling == RopeScaling::kNone) rope.scaling = RopeScaling::kLongrope;
  if (has_longrope && rope.scaling != RopeScaling::kLongrope) {
    return invalid("the model has longrope factors but states that its RoPE scaling is " +
                       std::string(rope_scaling_name(rope.scaling)),
                   scaling_keys + "type");
  }
  if (rope.scaling == RopeScaling::kYarn)
    TRY(read_yarn(file, config.architecture, scaling_keys, attention_factor, is_latent, rope));
  if (rope.scaling == RopeScaling::kLongrope) TRY(read_longrope(file, scaling_keys, attention_factor, rope));
  return rope;
}

}  // namespace ibid::arch
