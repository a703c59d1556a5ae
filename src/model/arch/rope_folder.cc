#include <algorithm>

#include "kernels/math.h"
#include "model/arch/common.h"

namespace ibid::arch {
namespace {

Result<RopeScaling> scaling_kind(const std::string& name, const std::string& key) {
  if (name == "default") return RopeScaling::kNone;
  if (name == "linear") return RopeScaling::kLinear;
  if (name == "llama3") return RopeScaling::kLlama3;
  if (name == "yarn") return RopeScaling::kYarn;
  if (name == "longrope" || name == "su") return RopeScaling::kLongrope;
  if (name == "dynamic") {
    return unsupported(
        "the model scales RoPE by dynamic NTK: a token's place would depend on the length of the text that "
        "follows, so cached answers could not be the same; expected linear, llama3, yarn or longrope",
        key);
  }
  return unsupported(
      "the model's RoPE scaling is " + in_quotes(name) + "; ibid knows linear, llama3, yarn and longrope", key);
}

// yarn's magnitude by `mscale`: 0.1 mscale ln(factor) + 1.
double magnitude_by(double mscale, double factor) { return factor <= 1 ? 1.0 : 0.1 * mscale * math::log(factor) + 1.0; }

Status read_yarn(const ModelFile& file, const std::string& from, bool is_latent, RopeConfig& rope) {
  ASSIGN_OR_RETURN(rope.beta_fast, file.meta_float(from + "beta_fast", 32.0));
  ASSIGN_OR_RETURN(rope.beta_slow, file.meta_float(from + "beta_slow", 1.0));
  ASSIGN_OR_RETURN(rope.truncate, file.meta_bool(from + "truncate", true));
  if (is_latent) {
    ASSIGN_OR_RETURN(const double mscale, file.meta_float(from + "mscale", 0.0));
    ASSIGN_OR_RETURN(rope.mscale_all, file.meta_float(from + "mscale_all_dim", 0.0));
    for (const double by : {mscale, rope.mscale_all}) {
      if (!(by >= 0 && by <= 100)) {
        return invalid("yarn's mscale is " + std::to_string(by) + "; expected 0 to 100", from + "mscale");
      }
    }
    if (rope.magnitude == 0 && mscale != 0 && rope.mscale_all != 0)
      rope.magnitude = magnitude_by(mscale, rope.factor) / magnitude_by(rope.mscale_all, rope.factor);
    return {};
  }
  const std::string mscale = from + "mscale", mscale_all_dim = from + "mscale_all_dim";
  if (rope.magnitude != 0 || (!file.has_meta(mscale) && !file.has_meta(mscale_all_dim))) return {};
  ASSIGN_OR_RETURN(const double of_angles, file.meta_float(mscale));
  ASSIGN_OR_RETURN(const double of_all, file.meta_float(mscale_all_dim));
  if (!(of_angles > 0 && of_angles <= 1e3 && of_all > 0 && of_all <= 1e3 && rope.factor >= 1)) {
    return invalid("the model's yarn scaling has an mscale of " + std::to_string(of_angles) +
                       " and of all dimensions " + std::to_string(of_all) + "; expected positive numbers",
                   mscale);
  }
  const double log_factor = math::log(rope.factor);
  rope.magnitude = (0.1 * of_angles * log_factor + 1.0) / (0.1 * of_all * log_factor + 1.0);
  return {};
}

}  // namespace

Result<RopeConfig> rope_from_folder(const ModelFile& file, const ModelConfig& config, const std::string& prefix,
                                    const std::string& parameters, double default_base) {
  // New: all of it in one object. Old: rope_theta beside rope_scaling, whose kind is "type" or "rope_type".
  const bool is_new = file.has_meta(parameters + ".rope_theta") || file.has_meta(parameters + ".rope_type");
  const std::string from = is_new ? parameters + "." : prefix + "rope_scaling.";
  RopeConfig rope;
  ASSIGN_OR_RETURN(double outer_base, file.meta_float(prefix + "rope_theta", default_base));
  ASSIGN_OR_RETURN(rope.base, file.meta_float(parameters + ".rope_theta", outer_base));
  ASSIGN_OR_RETURN(double outer_part, file.meta_float(prefix + "partial_rotary_factor", 1.0));
  ASSIGN_OR_RETURN(double part, file.meta_float(parameters + ".partial_rotary_factor", outer_part));
  if (!(part > 0 && part <= 1)) return invalid("partial_rotary_factor is not between 0 and 1", from);
  // An absurd size is refused by validate(), which comes later.
  const auto head_len = static_cast<double>(std::clamp<int64_t>(config.layers.front().key_len, 0, 1 << 20));
  rope.n_pairs = static_cast<int>(static_cast<int64_t>(head_len * part) / 2);

  ASSIGN_OR_RETURN(std::string old_name, file.meta_string(from + "type", "default"));
  ASSIGN_OR_RETURN(std::string name, file.meta_string(from + "rope_type", old_name));
  if (file.has_meta(from + "type") && name != old_name) {
    return invalid("config.json names two kinds of RoPE scaling, " + in_quotes(name) + " and " + in_quotes(old_name),
                   from + "type");
  }
  ASSIGN_OR_RETURN(rope.scaling, scaling_kind(name, from + "rope_type"));
  if (rope.scaling == RopeScaling::kNone) {
    if (!file.has_meta(from + "factor")) return rope;
    return invalid("config.json gives a RoPE scaling factor but no kind of scaling", from + "rope_type");
  }
  if (rope.scaling != RopeScaling::kLongrope || file.has_meta(from + "factor")) {
    ASSIGN_OR_RETURN(rope.factor, file.meta_float(from + "factor"));
  }
  ASSIGN_OR_RETURN(rope.magnitude, file.meta_float(from + "attention_factor", 0.0));
  if (file.has_meta(from + "attention_factor") && !(rope.magnitude > 0)) {
    return invalid("the model's RoPE attention factor is not positive", from + "attention_factor");
  }
  if (rope.scaling == RopeScaling::kLinear) return rope;

  // Phi-3 keeps it beside the object; where both are given they must agree.
  const std::string inner = from + "original_max_position_embeddings",
                    outer = prefix + "original_max_position_embeddings";
  ASSIGN_OR_RETURN(int64_t outer_context, file.meta_int(outer, 0));
  ASSIGN_OR_RETURN(rope.original_context, file.meta_int(inner, outer_context));
  if (rope.original_context == 0) {
    return invalid("the model scales RoPE by " + name + " but gives no original_max_position_embeddings", inner);
  }
  if (outer_context != 0 && outer_context != rope.original_context) {
    return invalid("config.json gives two different values of original_max_position_embeddings", inner);
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    ASSIGN_OR_RETURN(rope.low_freq_factor, file.meta_float(from + "low_freq_factor"));
    ASSIGN_OR_RETURN(rope.high_freq_factor, file.meta_float(from + "high_freq_factor"));
  } else if (rope.scaling == RopeScaling::kYarn) {
    TRY(read_yarn(file, from, config.layers.front().mixer == Mixer::kLatent, rope));
  } else {
    ASSIGN_OR_RETURN(rope.short_factors, file.meta_floats(from + "short_factor"));
    ASSIGN_OR_RETURN(rope.long_factors, file.meta_floats(from + "long_factor"));
    if (!file.has_meta(from + "factor")) {
      rope.factor = static_cast<double>(config.trained_context_len) / static_cast<double>(rope.original_context);
    }
  }
  return rope;
}

}  // namespace ibid::arch
