// EAGLE heads' files: those that are not of the model, or not whole, are refused by name; what outputs stand for is
// found in either spelling. What heads compute is held to the papers by eagle_golden_test.cc.
#include "spec/heads/eagle_head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "model/testing/loaded_model.h"
#include "tiny_eagle.h"

namespace ibid {
namespace {

using testing::LoadedModel;
using testing::TinyEagle;

constexpr EagleSizes kSizes = {.n_sequences = 2, .n_tokens = 64, .n_blocks = 8, .context_len = 64, .step_tokens = 128};

class EagleHeads : public ::testing::Test {
 protected:
  TinyEagle third() const {
    return {
        .width = m_.model->config().width, .vocab_size = m_.model->config().vocab_size, .ids = {0, 3, 7, 8, 40, 95}};
  }
  TinyEagle first() const {
    TinyEagle o = third();
    o.is_third = false;
    o.ids = {};
    return o;
  }
  using Changes = std::map<std::string, MetaValue>;
  std::shared_ptr<const ModelFile> file(const TinyEagle& o, const Changes& changes = {}) const {
    const auto made = testing::tiny_eagle_file(o);
    ModelFile::Parts parts;
    parts.path = made->path();
    parts.tensors = made->tensors();
    parts.metadata = made->metadata();
    for (const auto& [key, value] : changes) parts.metadata[key] = value;
    made_.push_back(made);
    return std::make_shared<const ModelFile>(std::move(parts));
  }
  std::string refused(const std::shared_ptr<const ModelFile>& head) const {
    const auto loaded = EagleHead::load(head, *m_.model, *m_.stream, kSizes);
    EXPECT_FALSE(EagleHead::sized_bytes(*head, *m_.model, *m_.stream, kSizes).ok() || loaded.ok());
    return loaded ? "" : loaded.error().message;
  }
  void expect_refused(const std::string& what, const TinyEagle& o, const Changes& changes = {}) const {
    const std::string said = refused(file(o, changes));
    EXPECT_NE(said.find(what), std::string::npos) << said;
  }

  LoadedModel m_{testing::TinyModelOptions{}};
  mutable std::vector<std::shared_ptr<const ModelFile>> made_;  // whose bytes are read
};

TEST_F(EagleHeads, KnowWhatTheyReadAndWhatTheirOutputsStandFor) {
  const std::vector<TokenId> members = {TokenId{0}, TokenId{3}, TokenId{7}, TokenId{8}, TokenId{40}, TokenId{95}};
  for (const bool says_ids : {false, true}) {
    TinyEagle o = third();
    o.says_ids = says_ids;
    auto head = EagleHead::load(file(o), *m_.model, *m_.stream, kSizes).value();
    EXPECT_TRUE(head->is_third());
    EXPECT_EQ(head->ids(), members);
    ASSERT_EQ(head->taps().layers.size(), 2U);
    EXPECT_EQ(head->taps().layers[0], 0) << "the input of layer 1 is the output of layer 0";
    EXPECT_EQ(head->taps().layers[1], 1);
    EXPECT_EQ(head->taps().out[1].dim[0], kSizes.step_tokens);
    EXPECT_EQ(head->feature_len(), 2 * o.width);
  }
  TinyEagle without = third();  // distances without t2d
  without.left_out = "t2d";
  EXPECT_EQ(EagleHead::load(file(without), *m_.model, *m_.stream, kSizes).value()->ids(), members);
  auto head = EagleHead::load(file(first()), *m_.model, *m_.stream, kSizes).value();
  EXPECT_FALSE(head->is_third());
  EXPECT_TRUE(head->ids().empty());
  ASSERT_EQ(head->taps().layers.size(), 1U);
  EXPECT_EQ(head->taps().layers[0], m_.model->config().n_layers) << "after the final norm";
  EXPECT_GT(EagleHead::sized_bytes(*file(third()), *m_.model, *m_.stream, kSizes).value(),
            8 * EagleHead::block_bytes(*file(third()), *m_.model, *m_.stream, kSizes).value());
}

TEST_F(EagleHeads, OfAnotherModelAreRefusedByName) {
  TinyEagle o = third();
  o.width *= 2;
  expect_refused("fc.weight", o);
  o = first();
  o.width *= 2;
  expect_refused("head of the model's width", o);
  expect_refused("the model's 2", third(), {{"eagle_aux_hidden_state_layer_ids", std::vector<int64_t>{1, 3}}});
  expect_refused("the model's 2", third(), {{"eagle_aux_hidden_state_layer_ids", std::vector<int64_t>{0, 1}}});
  expect_refused("the model's 2", third(), {{"eagle_aux_hidden_state_layer_ids", std::vector<int64_t>{2, 1}}});
  expect_refused("of a model of width 7", third(), {{"target_hidden_size", int64_t{7}}});
  for (const std::vector<int64_t>& ids : {std::vector<int64_t>{3, 3}, {5, 4}, {-1, 2}, {0, 96}, {1, 1000000}}) {
    o = third();
    o.ids = ids;
    expect_refused("d2t", o);
  }
  EXPECT_FALSE(EagleHead::load(testing::tiny_model_file({}), *m_.model, *m_.stream, kSizes).ok());
}

// `name` of another type, with bytes for any.
std::shared_ptr<const ModelFile> retyped(const ModelFile& from, const std::string& name, DType dtype) {
  ModelFile::Parts parts;
  parts.path = from.path();
  parts.tensors = from.tensors();
  parts.metadata = from.metadata();
  const auto t = std::ranges::find(parts.tensors, name, &TensorInfo::name);
  CHECK(t != parts.tensors.end());
  auto bytes = std::make_unique<std::byte[]>(static_cast<size_t>(t->view.n_elements()) * sizeof(double));
  t->view = TensorView(bytes.get(), dtype, {t->view.dim[0], t->view.dim[1]});
  parts.copies.push_back(std::move(bytes));
  return std::make_shared<const ModelFile>(std::move(parts));
}

TEST_F(EagleHeads, OfTypesThatNoWeightHasAreRefusedByName) {
  const auto made = testing::tiny_eagle_file(third());
  for (const DType dtype : {DType::kI8, DType::kI32, DType::kF64}) {
    for (const char* name : {"fc.weight", "midlayer.mlp.up_proj.weight", "lm_head.weight"}) {
      const std::string said = refused(retyped(*made, name, dtype));
      EXPECT_NE(said.find("which a weight cannot be"), std::string::npos) << said;
    }
  }
  TinyEagle o = first();
  o.added = "lm_head.bias";
  expect_refused("is a bias of nothing", o);
  o.added = "embed_tokens.bias";
  expect_refused("is a bias of nothing", o);
}

TEST_F(EagleHeads, OfOtherKindsOrInPartsAreRefusedByName) {
  // The last one distinguishes EAGLE-3 from EAGLE-1.
  for (const auto& [name, part] : std::map<std::string, std::string>{
           {"fc.weight", "no fc.weight"},
           {"midlayer.self_attn.k_proj.weight", "no self_attn.k_proj.weight"},
           {"midlayer.post_attention_layernorm.weight", "no post_attention_layernorm.weight"},
           {"midlayer.input_layernorm.weight", "no input_layernorm.weight"},
           {"norm.weight", "no norm.weight"},
           {"lm_head.weight", "no lm_head.weight"},
           {"midlayer.hidden_norm.weight", "fc.weight"}}) {
    TinyEagle part_of = third();
    part_of.taps = {1};
    part_of.left_out = name;
    expect_refused(part, part_of);
  }
  TinyEagle o = third();
  o.added = "layers.1.self_attn.q_norm.weight";
  expect_refused("layers.1.self_attn.q_norm.weight", o);
  o.added = "layers.0.input_layernorm.weight";
  expect_refused("are one", o);
  expect_refused("of 2 layers", third(), {{"num_hidden_layers", int64_t{2}}});
  expect_refused("no input_norm.weight", third(), {{"norm_before_fc", true}});
  expect_refused("no fc_norm.0.weight", third(), {{"eagle_config.fc_norm", true}});
  expect_refused("both set", third(), {{"norm_before_fc", true}, {"fc_norm", true}});
  expect_refused("of EAGLE-3", first(), {{"fc_norm", true}});
  o.added = "input_norm.weight";
  expect_refused("has no input_norm.weight", o);
  expect_refused("is not of", o, {{"norm_before_fc", true}});
  o.added = "fc_norm.0.weight";
  expect_refused("1 fc_norm tensors where 0", o);
  expect_refused("no fc_norm.1.weight", o, {{"fc_norm", true}});
  o.added = "fc_norm.0.bias";
  expect_refused("of no EAGLE head", o);
  expect_refused("sliding window", third(), {{"layer_types", std::vector<std::string>{"sliding_attention"}}});
  expect_refused("hidden_act", third(), {{"hidden_act", std::string("gelu")}});
  expect_refused("of EAGLE-3", first(), {{"norm_output", true}});
  expect_refused("num_attention_heads", third(), {{"num_attention_heads", std::string("four")}});
  expect_refused("q_proj", third(), {{"head_dim", int64_t{16}}});
  EXPECT_FALSE(refused(file(third(), {{"num_attention_heads", int64_t{0}}})).empty());
  EXPECT_FALSE(refused(file(third(), {{"hidden_size", int64_t{1} << 60}})).empty());
}

}  // namespace
}  // namespace ibid
