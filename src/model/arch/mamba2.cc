// How GGUF and config.json describe a state space of Mamba 2.
#include <algorithm>
#include <cmath>

#include "model/arch/common.h"

namespace ibid::arch {
namespace {

constexpr int64_t kMostHeads = 4096, kMostLen = 65536, kMostTaps = 65536;  // that state_len may be multiplied from

Result<int64_t> size_or(const ModelFile& file, const std::string& key, int64_t otherwise, int64_t most) {
  return otherwise > 0 && !file.has_meta(key) ? Result<int64_t>(otherwise) : bounded_size(file, key, most);
}

}  // namespace

Status Mamba2Sizes::put(LayerConfig& layer) const {
  if (heads.n_heads % heads.n_groups != 0) {
    return invalid("the model's state spaces have " + std::to_string(heads.n_heads) + " heads in " +
                   std::to_string(heads.n_groups) + " groups; the first must be a multiple of the second");
  }
  layer.recurrence = Recurrence::kMamba2;
  layer.ssm = heads;
  layer.conv_len = conv_len;
  layer.conv_channels = heads.xbc_len();
  layer.state_len = layer.conv_state_len() + heads.n_values();
  return {};
}

void set_no_attention(Mixer mixer, LayerConfig& layer) {
  layer.mixer = mixer;
  layer.n_heads = layer.n_kv_heads = 0;
  layer.set_head_len(0);
  layer.attention_scale = 0;
  layer.window = 0;
  layer.rope = kNoRope;
}

Result<Mamba2Sizes> mamba2_from_gguf(const ModelFile& file, ModelConfig& config) {
  const std::string arch = config.architecture + ".ssm.";
  Mamba2Sizes out;
  ASSIGN_OR_RETURN(out.heads.n_heads, bounded_size(file, arch + "time_step_rank", kMostHeads));
  ASSIGN_OR_RETURN(out.heads.n_groups, bounded_size(file, arch + "group_count", kMostHeads));
  ASSIGN_OR_RETURN(out.heads.state_len, bounded_size(file, arch + "state_size", kMostLen));
  ASSIGN_OR_RETURN(const int64_t inner, bounded_size(file, arch + "inner_size", int64_t{1} << 32));
  if (inner % out.heads.n_heads != 0) {
    return invalid("the model's state spaces have outputs of " + std::to_string(inner) + " for " +
                       std::to_string(out.heads.n_heads) + " heads; expected as many for each",
                   arch + "inner_size");
  }
  out.heads.head_len = inner / out.heads.n_heads;
  if (out.heads.head_len > kMostLen) {
    return invalid("the model's state spaces have heads of " + std::to_string(out.heads.head_len) + "; expected 1 to " +
                       std::to_string(kMostLen),
                   arch + "inner_size");
  }
  ASSIGN_OR_RETURN(out.conv_len, bounded_size(file, arch + "conv_kernel", kMostTaps));
  config.conv_bias =
      std::ranges::any_of(file.tensors(), [](const TensorInfo& t) { return t.name.ends_with(".ssm_conv1d.bias"); });
  return out;
}

Result<Mamba2Sizes> mamba2_from_folder(const ModelFile& file, const Mamba2Keys& keys, ModelConfig& config) {
  Mamba2Sizes out;
  ASSIGN_OR_RETURN(out.heads.n_heads, size_or(file, keys.n_heads, 128, kMostHeads));
  ASSIGN_OR_RETURN(out.heads.n_groups, size_or(file, keys.n_groups, keys.usual_groups, kMostHeads));
  ASSIGN_OR_RETURN(out.heads.state_len, size_or(file, keys.state_len, keys.usual_state_len, kMostLen));
  ASSIGN_OR_RETURN(out.conv_len, size_or(file, keys.conv_len, 4, kMostTaps));
  if (keys.head_len.empty()) {
    const bool gives_inner = !keys.inner.empty() && file.has_meta(keys.inner);
    ASSIGN_OR_RETURN(const int64_t expand, size_or(file, keys.expand, 2, kMostLen));
    int64_t inner = expand * std::clamp<int64_t>(config.width, 1, int64_t{1} << 32);
    if (gives_inner) {
      ASSIGN_OR_RETURN(inner, bounded_size(file, keys.inner, int64_t{1} << 32));
    }
    if (inner % out.heads.n_heads != 0 || inner / out.heads.n_heads > kMostLen) {
      return invalid("the model's state spaces have outputs of " + std::to_string(inner) + " for " +
                         std::to_string(out.heads.n_heads) + " heads; expected as many for each, up to " +
                         std::to_string(kMostLen),
                     keys.n_heads);
    }
    out.heads.head_len = inner / out.heads.n_heads;
  } else {
    ASSIGN_OR_RETURN(out.heads.head_len, size_or(file, keys.head_len, 64, kMostLen));
  }
  ASSIGN_OR_RETURN(config.conv_bias, file.meta_bool(keys.conv_bias, true));
  TRY(flag_must_be(file, keys.proj_bias, false));
  TRY(steps_must_be_unlimited(file));
  return out;
}

// transformers writes [0.0, {"__float__": "Infinity"}], published folders [0.0, Infinity].
Status steps_must_be_unlimited(const ModelFile& file) {
  const std::string key = "time_step_limit";
  std::vector<double> limits;
  if (file.has_meta(key)) {
    ASSIGN_OR_RETURN(limits, file.meta_floats(key));
  } else if (file.has_meta(key + ".0")) {
    limits.resize(2);
    ASSIGN_OR_RETURN(limits[0], file.meta_float(key + ".0"));
    const std::string in_object = key + ".1.__float__";
    std::string most;
    ASSIGN_OR_RETURN(most, file.meta_string(file.has_meta(in_object) ? in_object : key + ".1", ""));
    limits[1] = most == "Infinity" ? INFINITY : 0;
  } else {
    return {};
  }
  if (limits.size() == 2 && limits[0] == 0 && std::isinf(limits[1])) return {};
  return unsupported("the model limits the steps of its state spaces; ibid runs those without a limit", key);
}

}  // namespace ibid::arch
