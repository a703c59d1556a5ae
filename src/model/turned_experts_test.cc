// Experts as folders of gpt-oss keep them: columns, or MXFP4 in blocks beside exponents, gate and up in turn. The same
// bits as those of a GGUF with the same weights.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "model/testing/loaded_model.h"
#include "model/testing/parts.h"
#include "tensor/block_formats.h"

namespace ibid {
namespace {

using testing::LoadedModel;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  if (const size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

// What the folder calls a tensor that both containers have alike.
std::string name_in_folder(const std::string& name) {
  std::string out = "model." + replaced(name, "blk.", "layers.");
  for (const auto& [from, to] : {std::pair("token_embd", "embed_tokens"),
                                 {"output_norm", "norm"},
                                 {"attn_norm", "input_layernorm"},
                                 {"ffn_norm", "post_attention_layernorm"},
                                 {"attn_q", "self_attn.q_proj"},
                                 {"attn_k", "self_attn.k_proj"},
                                 {"attn_v", "self_attn.v_proj"},
                                 {"attn_output", "self_attn.o_proj"},
                                 {"attn_sinks.weight", "self_attn.sinks"},
                                 {"ffn_gate_inp", "mlp.router"}})
    out = replaced(out, from, to);
  return name == "output.weight" ? "lm_head.weight" : out;
}

class TurnedExperts : public ::testing::Test {
 protected:
  explicit TurnedExperts() = default;

  static std::shared_ptr<const ModelFile> gguf(DType dtype) {
    return testing::tiny_model_file({.architecture = "gpt_oss", .dtype = dtype, .seed = 3});
  }

  // Bytes for a tensor of the folder, which is added.
  static std::byte* add(ModelFile::Parts& parts, std::string name, DType dtype, std::initializer_list<int64_t> dims) {
    TensorView view(nullptr, dtype, dims);
    parts.copies.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(view.n_rows() * view.row_stride_bytes)));
    view.data = parts.copies.back().get();
    parts.tensors.push_back({std::move(name), view});
    return view.data;
  }

  // One tensor of the folder made of `of`, whose rows it has in turn.
  static void add_turned(ModelFile::Parts& parts, const std::string& name, const std::vector<TensorView>& of) {
    const int64_t E = of[0].dim[0], n = std::ssize(of), N = of[0].dim[1] * n, K = of[0].dim[2];
    const DType dtype = of[0].dtype;
    const auto row_of = [&](int64_t e, int64_t r) { return of[static_cast<size_t>(r % n)].matrix(e).row(r / n); };
    if (dtype == DType::kMXFP4) {
      std::byte* blocks = add(parts, name + "_blocks", DType::kI8, {E, N, K / 32, 16});
      std::byte* scales = add(parts, name + "_scales", DType::kI8, {E, N, K / 32});
      for (int64_t r = 0; r < E * N; ++r) {
        const auto* row = reinterpret_cast<const BlockMXFP4*>(row_of(r / N, r % N));
        for (int64_t b = 0; b < K / 32; ++b) {
          *scales++ = std::byte{row[b].exponent};
          uint8_t codes[32];
          for (int i = 0; i < 16; ++i) codes[i] = row[b].codes[i] & 15, codes[i + 16] = row[b].codes[i] >> 4;
          for (int i = 0; i < 16; ++i) *blocks++ = static_cast<std::byte>(codes[2 * i] | codes[2 * i + 1] << 4);
        }
      }
      return;
    }
    const int64_t len = traits(dtype).block_bytes;
    std::byte* out = add(parts, name, dtype, {E, K, N});
    for (int64_t e = 0; e < E; ++e) {
      for (int64_t k = 0; k < K; ++k) {
        for (int64_t r = 0; r < N; ++r, out += len) std::memcpy(out, row_of(e, r) + k * len, static_cast<size_t>(len));
      }
    }
  }

  static void add_bias(ModelFile::Parts& parts, const std::string& name, const std::vector<TensorView>& of) {
    const int64_t E = of[0].dim[0], n = std::ssize(of), N = of[0].dim[1] * n;
    auto* out = reinterpret_cast<float*>(add(parts, name + "_bias", DType::kF32, {E, N}));
    for (int64_t i = 0; i < E * N; ++i)
      *out++ = of[static_cast<size_t>(i % N % n)].row_as<const float>(i / N)[i % N / n];
  }

  static ModelFile::Parts folder_of(const ModelFile& file, const ModelConfig& c) {
    ModelFile::Parts parts = testing::folder_parts("gpt_oss");
    const LayerConfig& layer = c.layers.front();
    parts.metadata["hidden_size"] = c.width;
    parts.metadata["intermediate_size"] = layer.expert_len;
    parts.metadata["num_hidden_layers"] = c.n_layers;
    parts.metadata["num_attention_heads"] = layer.n_heads;
    parts.metadata["num_key_value_heads"] = layer.n_kv_heads;
    parts.metadata["head_dim"] = layer.key_len;
    parts.metadata["vocab_size"] = c.vocab_size;
    parts.metadata["max_position_embeddings"] = c.trained_context_len;
    parts.metadata["rms_norm_eps"] = static_cast<double>(c.norm_eps);
    parts.metadata["num_local_experts"] = layer.n_experts;
    parts.metadata["num_experts_per_tok"] = layer.n_experts_used;
    parts.metadata["sliding_window"] = int64_t{layer.window};
    parts.metadata["rope_theta"] = c.ropes.front().base;
    parts.metadata["quantization_config.quant_method"] = std::string("mxfp4");
    for (const TensorInfo& t : file.tensors()) {
      if (t.name.find("_exps.") != std::string::npos) continue;
      TensorInfo& to = parts.tensors.emplace_back(t);
      to.name = name_in_folder(t.name);
    }
    for (int64_t l = 0; l < c.n_layers; ++l) {
      const std::string of = "blk." + std::to_string(l) + ".ffn_",
                        to = "model.layers." + std::to_string(l) + ".mlp.experts.";
      const auto view = [&](const char* name) { return file.find(of + name)->view; };
      add_turned(parts, to + "gate_up_proj", {view("gate_exps.weight"), view("up_exps.weight")});
      add_turned(parts, to + "down_proj", {view("down_exps.weight")});
      add_bias(parts, to + "gate_up_proj", {view("gate_exps.bias"), view("up_exps.bias")});
      add_bias(parts, to + "down_proj", {view("down_exps.bias")});
    }
    return parts;
  }
};

TEST_F(TurnedExperts, HaveTheBitsOfTheSameWeightsInAGguf) {
  for (const DType dtype : {DType::kMXFP4, DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(traits(dtype).name);
    const auto file = gguf(dtype);
    LoadedModel expected(file);
    const auto folder = std::make_shared<ModelFile>(folder_of(*file, expected.model->config()));
    for (const int n_threads : {1, 3}) {
      LoadedModel m(folder, {.step_tokens = 128, .max_rows = 128}, n_threads);
      ASSERT_NE(m.model, nullptr);
      const auto tokens = testing::some_tokens(60, m.model->config().vocab_size);
      EXPECT_EQ(m.logits(tokens), expected.logits(tokens));
      EXPECT_EQ(m.model->memory().repacked_bytes, expected.model->memory().repacked_bytes);
      LoadedModel sized(folder, {.step_tokens = 128, .max_rows = 128, .sized_only = true});
      EXPECT_EQ(sized.model->memory().repacked_bytes, m.model->memory().repacked_bytes);
    }
  }
}

TEST_F(TurnedExperts, ThatDoNotFitAreRefusedByASentence) {
  const auto file = gguf(DType::kMXFP4);
  const ModelConfig config = LoadedModel(file).model->config();
  const std::string experts = "model.layers.1.mlp.experts.";
  const auto error = [&](const std::function<void(TensorInfo&)>& change) {
    ModelFile::Parts parts = folder_of(*file, config);
    for (TensorInfo& t : parts.tensors) change(t);
    return testing::load_error(std::move(parts));
  };
  EXPECT_EQ(error([](TensorInfo&) {}), "");
  const auto expect_error = [&](const char* name, const std::function<void(TensorInfo&)>& change, const char* text) {
    const std::string sentence = error([&](TensorInfo& t) {
      if (t.name == experts + name) change(t);
    });
    EXPECT_NE(sentence.find(text), std::string::npos) << sentence;
  };
  expect_error(
      "gate_up_proj_scales", [](TensorInfo& t) { t.name += "s"; }, "gate_up_proj_scales");
  expect_error(
      "down_proj_blocks", [](TensorInfo& t) { t.name += "s"; }, "down_proj");
  expect_error(
      "down_proj_blocks", [](TensorInfo& t) { t.view.dtype = DType::kI32; }, "expected U8");
  expect_error(
      "gate_up_proj_scales", [](TensorInfo& t) { t.view.dtype = DType::kF32; }, "expected U8");
  expect_error(
      "gate_up_proj_blocks", [](TensorInfo& t) { t.view.dim[3] = 8; }, "[10, 128, 3, 8]");
  expect_error(
      "gate_up_proj_bias", [](TensorInfo& t) { t.view.dim[1] = 64; }, "[10, 64]");
  expect_error(
      "down_proj_bias", [](TensorInfo& t) { t.view.dtype = DType::kI32; }, "for a bias");
}

}  // namespace
}  // namespace ibid
