// Random EAGLE heads for a tiny model, and a head's passes over a sequence's pairs, cut as a test chooses.
#pragma once

#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "format/model_file.h"
#include "kernels/batch_arrays.h"
#include "model/config.h"
#include "model/testing/tiny_model.h"
#include "spec/heads/eagle_head.h"
#include "spec/heads/mtp_layer.h"

namespace ibid::testing {

// Room for the sequences of a test, and lossless KV.
inline constexpr EagleSizes kTinyEagleSizes = {
    .n_sequences = 24, .n_tokens = 32, .n_blocks = 8, .kv_dtype = KvType::kF32, .context_len = 128, .step_tokens = 32};

struct TinyEagle {
  int64_t width = 0, vocab_size = 0;  // the target's
  bool is_third = true;
  std::vector<int64_t> taps = {1, 2};  // of EAGLE-3
  std::vector<int64_t> ids;            // of EAGLE-3's outputs, as distances; empty: all of the vocabulary
  bool says_ids = false;               // d2t has the ids themselves
  uint64_t seed = 1;
  std::string left_out = {};  // a tensor that is missing
  std::string added = {};     // one that no head has
};

inline std::shared_ptr<const ModelFile> tiny_eagle_file(const TinyEagle& o) {
  ModelFile::Parts parts;
  parts.path = "tiny eagle";
  std::mt19937_64 random(o.seed);
  const auto bytes_for = [&](const std::string& name, DType dtype, std::initializer_list<int64_t> dims) {
    parts.copies.push_back(nullptr);
    TensorView view(nullptr, dtype, dims);
    parts.copies.back() = std::make_unique<std::byte[]>(static_cast<size_t>(view.n_rows() * view.row_stride_bytes));
    view.data = parts.copies.back().get();
    if (name != o.left_out) parts.tensors.push_back({name, view});
    return view;
  };
  const auto add = [&](const std::string& name, std::initializer_list<int64_t> dims) {
    const TensorView view = bytes_for(name, DType::kF32, dims);
    const bool is_norm = dims.size() == 1;
    for (int64_t i = 0; i < view.n_elements(); ++i) {
      const float x = static_cast<float>(random() >> 40) / float{1 << 24} - 0.5F;
      view.row_as<float>(0)[i] = is_norm ? 1 + x : x;
    }
  };
  const int64_t C = o.width, F = 2 * C, H = C / 8, K = H % 2 == 0 ? H / 2 : H;
  const std::string layer = o.is_third ? "midlayer." : "layers.0.";
  const int64_t read = o.is_third ? 2 * C : C;
  add("fc.weight", {C, o.is_third ? static_cast<int64_t>(o.taps.size()) * C : 2 * C});
  add(layer + "self_attn.q_proj.weight", {H * 8, read});
  add(layer + "self_attn.k_proj.weight", {K * 8, read});
  add(layer + "self_attn.v_proj.weight", {K * 8, read});
  add(layer + "self_attn.o_proj.weight", {C, H * 8});
  add(layer + "mlp.gate_proj.weight", {F, C});
  add(layer + "mlp.up_proj.weight", {F, C});
  add(layer + "mlp.down_proj.weight", {C, F});
  add(layer + "post_attention_layernorm.weight", {C});
  if (!o.added.empty()) add(o.added, {C});
  if (o.is_third) {
    add(layer + "input_layernorm.weight", {C});
    add(layer + "hidden_norm.weight", {C});
    add("norm.weight", {C});
    add("lm_head.weight", {o.ids.empty() ? o.vocab_size : static_cast<int64_t>(o.ids.size()), C});
  }
  if (!o.ids.empty()) {
    const TensorView d2t = bytes_for("d2t", DType::kI64, {static_cast<int64_t>(o.ids.size())});
    const TensorView t2d = bytes_for("t2d", DType::kI8, {o.vocab_size});
    for (size_t i = 0; i < o.ids.size(); ++i) {
      d2t.row_as<int64_t>(0)[i] = o.ids[i] - (o.says_ids ? 0 : static_cast<int64_t>(i));
      if (o.ids[i] >= 0 && o.ids[i] < o.vocab_size) t2d.row_as<int8_t>(0)[o.ids[i]] = 1;
    }
  }
  auto& meta = parts.metadata;
  meta["model_type"] = std::string("llama");
  meta["hidden_size"] = C;
  meta["intermediate_size"] = F;
  meta["num_hidden_layers"] = int64_t{1};
  meta["num_attention_heads"] = H;
  meta["num_key_value_heads"] = K;
  meta["vocab_size"] = o.vocab_size;
  meta["rms_norm_eps"] = 1e-5;
  if (o.is_third) meta["eagle_aux_hidden_state_layer_ids"] = o.taps;
  return std::make_shared<const ModelFile>(std::move(parts));
}

// A random MTP layer of such a model, as mtp_layer_of() presents one of a GGUF.
inline std::shared_ptr<const ModelFile> tiny_mtp_file(const ModelConfig& c, bool hidden_first, uint64_t seed = 1) {
  static const ModelFile nothing{ModelFile::Parts()};
  const auto layer = tiny_file_of(mtp_block_config(c, nothing).value(), {.seed = seed});
  ModelFile::Parts parts;
  parts.container = Container::kGguf;
  parts.path = "tiny mtp";
  parts.metadata = layer->metadata();
  parts.metadata[std::string(kMtpHiddenFirst)] = hidden_first;
  const auto copied = [&parts](const TensorInfo& t) -> TensorInfo& {
    parts.copies.push_back(std::make_unique<std::byte[]>(t.bytes()));
    TensorInfo& to = parts.tensors.emplace_back(t);
    to.view.data = parts.copies.back().get();
    if (t.view.data != nullptr) std::memcpy(to.view.data, t.view.data, t.bytes());
    return to;
  };
  for (const TensorInfo& t : layer->tensors()) {
    if (is_of_mtp_block(t.name)) copied(t);
  }
  std::mt19937_64 random(seed);
  const auto add = [&](const std::string& name, std::initializer_list<int64_t> dims) {
    const TensorView view = copied({name, TensorView(nullptr, DType::kF32, dims)}).view;
    for (int64_t i = 0; i < view.n_elements(); ++i)
      view.row_as<float>(0)[i] =
          static_cast<float>(random() >> 40) / float{1 << 24} - (dims.size() == 1 ? -0.5F : 0.5F);
  };
  add("fc.weight", {c.width, 2 * c.width});
  for (const char* name : {"embed_norm", "norm", "hidden_norm"}) add(std::string(name) + ".weight", {c.width});
  return std::make_shared<const ModelFile>(std::move(parts));
}

// The pairs of one sequence; pair i has slot i.
class PairsOfOne {
 public:
  explicit PairsOfOne(EagleHead& head)
      : head_(head), blocks_(static_cast<size_t>(head.sizes().n_blocks)), arrays_(head.sizes().block_len, {}) {
    for (size_t i = 0; i < blocks_.size(); ++i) blocks_[i] = BlockId{static_cast<int32_t>(i)};
  }
  // The pairs whose second tokens these are; features or states of as many lie in the head's first rows. The rows
  // count from these on.
  EagleHead::PassResult run(std::span<const TokenId> tokens, std::span<const int32_t> rows) {
    arrays_.clear();
    arrays_.add_run(tokens, n_, blocks_);
    n_ += arrays_.n_tokens();
    for (const int32_t row : rows) arrays_.want(row);
    arrays_.add_blocks(blocks_);
    arrays_.end_sequence();
    return head_.run(arrays_.batch());
  }

 private:
  EagleHead& head_;
  std::vector<BlockId> blocks_;
  BatchArrays arrays_;
  int32_t n_ = 0;
};

}  // namespace ibid::testing
