// Encoders' files that are well formed and still no model that we run, each with its sentence; what is counted of one
// that is.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "model/gguf_form.h"
#include "model/model.h"
#include "model/testing/loaded_model.h"
#include "model/testing/parts.h"

namespace ibid {
namespace {

using namespace testing;

TensorView& view(ModelFile::Parts& parts, std::string_view name) {
  const auto found = std::ranges::find(parts.tensors, name, &TensorInfo::name);
  CHECK(found != parts.tensors.end(), "a tensor of the tiny model");
  return found->view;
}
void shorten(ModelFile::Parts& parts, std::string_view name) { --view(parts, name).dim[0]; }

TEST(Bert, BadFilesAreRefusedByASentence) {
  const std::vector<Bad> cases = {
      {"no epsilon", [](auto& p) { p.metadata.erase("bert.attention.layer_norm_epsilon"); }, "layer_norm_epsilon"},
      {"an epsilon of zero", [](auto& p) { set(p, "bert.attention.layer_norm_epsilon", 0.0); }, "epsilon"},
      {"no heads", [](auto& p) { set(p, "bert.attention.head_count", int64_t{0}); }, "multiple"},
      {"heads that do not divide", [](auto& p) { set(p, "bert.attention.head_count", int64_t{5}); }, "multiple"},
      {"heads of 12", [](auto& p) { set(p, "bert.attention.head_count", int64_t{8}); }, "head size"},
      {"2^63 - 1 layers", [](auto& p) { set(p, "bert.block_count", INT64_MAX); }, "layers"},
      {"minus one layer", [](auto& p) { set(p, "bert.block_count", int64_t{-1}); }, "layers"},
      {"2^40 positions", [](auto& p) { set(p, "bert.context_length", int64_t{1} << 40); }, "context"},
      {"more positions than rows", [](auto& p) { set(p, "bert.context_length", int64_t{513}); }, "position_embd"},
      {"a causal mask", [](auto& p) { set(p, "bert.attention.causal", true); }, "causal"},
      {"an unknown pooling", [](auto& p) { set(p, "bert.pooling_type", int64_t{9}); }, "kind 9"},
      {"no embedding", [](auto& p) { drop(p, "token_embd.weight"); }, "vocabulary"},
      {"no positions", [](auto& p) { drop(p, "position_embd.weight"); }, "position_embd"},
      {"no bias of a norm", [](auto& p) { drop(p, "blk.1.attn_output_norm.bias"); }, "attn_output_norm.bias"},
      {"no bias of a product", [](auto& p) { drop(p, "blk.0.attn_output.bias"); }, "attn_output.bias"},
      {"a short norm", [](auto& p) { shorten(p, "token_embd_norm.weight"); }, "token_embd_norm.weight"},
      {"a narrow product", [](auto& p) { shorten(p, "blk.1.ffn_up.weight"); }, "ffn_up.weight"},
      {"a narrow head", [](auto& p) { shorten(p, "cls.weight"); }, "cls.weight"},
      {"a head without scores", [](auto& p) { drop(p, "cls.output.weight"); }, "does not use"},
      {"a head without a bias", [](auto& p) { drop(p, "cls.bias"); }, "cls.bias"},
      {"a tensor too many", [](auto& p) { p.tensors.back().name = "blk.0.attn_q_norm.weight"; }, "cls.output.bias"},
  };
  EXPECT_EQ(load_error(tiny_parts({.architecture = "bert_rank"})), "");
  for (const Bad& bad : cases) {
    ModelFile::Parts parts = tiny_parts({.architecture = "bert_rank"});
    bad.change(parts);
    EXPECT_NE(load_error(std::move(parts)).find(bad.says), std::string::npos) << bad.what;
  }
}

TEST(Bert, FoldersThatAskForMoreAreRefusedByName) {
  const auto refusal = [](const char* key, MetaValue value) {
    ModelFile::Parts parts = folder_parts("bert");
    set(parts, key, std::move(value));
    const auto config = read_config(ModelFile(std::move(parts)));
    return config ? std::string() : config.error().message;
  };
  EXPECT_EQ(refusal("hidden_act", std::string("gelu")), "");
  EXPECT_NE(refusal("hidden_act", std::string("relu")).find("relu"), std::string::npos);
  EXPECT_NE(refusal("position_embedding_type", std::string("relative_key")).find("relative_key"), std::string::npos);
  EXPECT_NE(refusal("is_decoder", true).find("is_decoder"), std::string::npos);
  EXPECT_NE(refusal("type_vocab_size", int64_t{-1}).find("token types"), std::string::npos);
  EXPECT_NE(refusal("num_attention_heads", int64_t{3}).find("multiple"), std::string::npos);
}

TEST(Bert, ParametersAreThoseOfItsTensors) {
  for (const char* architecture : {"bert", "bert_rank"}) {
    const LoadedModel m(TinyModelOptions{.architecture = architecture});
    int64_t all = 0;
    for (const TensorSpec& spec : tensors_of(m.model->config()))
      all += spec.dims[0] * (spec.dims.size() == 2 ? spec.dims[1] : 1);
    EXPECT_EQ(m.model->config().n_parameters(), all) << architecture;
    EXPECT_TRUE(m.model->kv_geometries().empty());
  }
}

}  // namespace
}  // namespace ibid
