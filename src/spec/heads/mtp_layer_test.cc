// MTP layers in whole models: found under each spelling, out of the forward pass, refused by name where they are not
// whole. What they compute is held to the papers by eagle_golden_test.cc.
#include "spec/heads/mtp_layer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "model/testing/config_as_gguf.h"
#include "model/testing/loaded_model.h"
#include "source_paths.h"
#include "temp_folder.h"
#include "tiny_eagle.h"
#include "tiny_files.h"

namespace ibid {
namespace {

using testing::kTinyEagleSizes;
using testing::LoadedModel;
using testing::PairsOfOne;

// Kept, as copies refer to its bytes.
std::shared_ptr<const ModelFile> golden(const std::string& name) {
  static std::map<std::string, std::shared_ptr<const ModelFile>> all;
  auto& file = all[name];
  if (file == nullptr)
    file = std::make_shared<const ModelFile>(ModelFile::open(source_dir() + "/tests/golden/" + name).value());
  return file;
}

// A copy whose tensors a test may rename, leave out or add to.
ModelFile::Parts parts_of(const ModelFile& file) {
  ModelFile::Parts parts;
  parts.container = file.container();
  parts.path = "a copy";
  parts.tensors = file.tensors();
  parts.metadata = file.metadata();
  return parts;
}

// [hidden; embedding] as [embedding; hidden].
void swap_halves(TensorInfo& fc, ModelFile::Parts& parts) {
  const int64_t C = fc.view.dim[0];
  const TensorView from = fc.view;
  parts.copies.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(fc.bytes())));
  fc.view.data = parts.copies.back().get();
  for (int64_t row = 0; row < C; ++row) {
    const float* x = from.row_as<const float>(row);
    std::copy_n(x, C, fc.view.row_as<float>(row) + C);
    std::copy_n(x + C, C, fc.view.row_as<float>(row));
  }
}

std::string replaced(std::string name, const std::map<std::string, std::string>& names) {
  for (const auto& [from, to] : names) {
    if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
  }
  return name;
}

// As DeepSeek's folders spell it.
std::shared_ptr<const ModelFile> numbered() {
  ModelFile::Parts parts = parts_of(*golden("mtp"));
  for (TensorInfo& t : parts.tensors) {
    if (t.name.ends_with("input_proj.weight")) swap_halves(t, parts);
    t.name = replaced(t.name, {{"mtp_layers.0", "layers.2"},
                               {"token_layernorm", "enorm"},
                               {"hidden_layernorm", "hnorm"},
                               {"input_proj", "eh_proj"},
                               {"final_layernorm", "shared_head.norm"}});
  }
  parts.metadata["model_type"] = std::string("qwen2");
  return std::make_shared<const ModelFile>(std::move(parts));
}

// As Qwen3-Next's spell it: what is not the decoder layer's lies beside it.
std::shared_ptr<const ModelFile> beside() {
  ModelFile::Parts parts = parts_of(*golden("mtp"));
  for (TensorInfo& t : parts.tensors) {
    if (t.name.ends_with("input_proj.weight")) swap_halves(t, parts);
    t.name = replaced(t.name, {{"model.mtp_layers.0.", "mtp.layers.0."},
                               {"mtp.layers.0.token_layernorm", "mtp.pre_fc_norm_embedding"},
                               {"mtp.layers.0.hidden_layernorm", "mtp.pre_fc_norm_hidden"},
                               {"mtp.layers.0.input_proj", "mtp.fc"},
                               {"mtp.layers.0.final_layernorm", "mtp.norm"}});
  }
  parts.metadata["model_type"] = std::string("qwen2");
  parts.metadata.erase("num_nextn_predict_layers");
  parts.metadata["mtp_num_hidden_layers"] = int64_t{2};
  parts.tensors.push_back(parts.tensors.back());
  parts.tensors.back().name = "mtp.layers.1.self_attn.q_proj.weight";  // of a further layer, which is not used
  return std::make_shared<const ModelFile>(std::move(parts));
}

// As GGUF files spell it: the layer counts among the blocks.
std::shared_ptr<const ModelFile> make_gguf() {
  static const ModelFile body = testing::as_gguf(*golden("qwen2")).value();
  ModelFile::Parts parts = parts_of(body);
  parts.metadata["qwen2.block_count"] = int64_t{3};
  parts.metadata["qwen2.nextn_predict_layers"] = int64_t{1};
  const std::string layer = "model.mtp_layers.0.";
  for (TensorInfo t : golden("mtp")->tensors()) {
    if (!t.name.starts_with(layer)) continue;
    if (t.name.ends_with("input_proj.weight")) swap_halves(t, parts);
    t.name = replaced(t.name, {{layer, "blk.2."},
                               {"token_layernorm", "nextn.enorm"},
                               {"hidden_layernorm", "nextn.hnorm"},
                               {"input_proj", "nextn.eh_proj"},
                               {"final_layernorm", "nextn.shared_head_norm"},
                               {"input_layernorm", "attn_norm"},
                               {"post_attention_layernorm", "ffn_norm"},
                               {"self_attn.q_proj", "attn_q"},
                               {"self_attn.k_proj", "attn_k"},
                               {"self_attn.v_proj", "attn_v"},
                               {"self_attn.o_proj", "attn_output"},
                               {"mlp.gate_proj", "ffn_gate"},
                               {"mlp.up_proj", "ffn_up"},
                               {"mlp.down_proj", "ffn_down"}});
    parts.tensors.push_back(t);
  }
  return std::make_shared<const ModelFile>(std::move(parts));
}

std::shared_ptr<const ModelFile> gguf() {
  static const auto file = make_gguf();
  return file;
}

struct Said {
  std::vector<float> model, head;  // logits of a sequence's tokens; of its last pair, and of a draft after it
};

Said said_by(const std::shared_ptr<const ModelFile>& file) {
  LoadedModel m(file);
  if (m.model == nullptr) return {};
  const std::vector<TokenId> text = testing::some_tokens(12, m.model->config().vocab_size, 7);
  Said out{.model = m.logits(text), .head = {}};
  const auto layer = mtp_layer_of(*file);
  EXPECT_TRUE(layer.ok()) << (layer ? "" : layer.error().message);
  if (!layer) return out;
  auto head = EagleHead::load(*layer, *m.model, *m.stream, kTinyEagleSizes);
  EXPECT_TRUE(head.ok()) << (head ? "" : head.error().message);
  if (!head) return out;
  EXPECT_EQ((*head)->taps().layers.front(), m.model->config().n_layers) << "what the final norm makes";
  PairsOfOne pairs(**head);
  for (int32_t row = 0; row < 11; ++row) {
    for (int32_t c = 0; c < (*head)->feature_len(); ++c)
      (*head)->features().row_as<float>(row)[c] = static_cast<float>((row * 31 + c * 7) % 17) / 8.0F - 1;
  }
  (*head)->fuse(11);
  const int32_t last = 10, first = 0;
  EagleHead::PassResult heard = pairs.run(std::span(text).last(11), {&last, 1});
  out.head.assign(heard.logits.begin(), heard.logits.end());
  (*head)->load_states({&first, 1});
  heard = pairs.run(std::span(text).first(1), {&first, 1});
  out.head.insert(out.head.end(), heard.logits.begin(), heard.logits.end());
  return out;
}

// max|a - b| / max|b|.
float difference(std::span<const float> a, std::span<const float> b) {
  float worst = 0, largest = 0;
  if (a.size() != b.size() || a.empty()) return std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i])), largest = std::max(largest, std::abs(b[i]));
  return worst / largest;
}

// fc sums its halves in another order.
bool alike(const std::vector<float>& a, const std::vector<float>& b) { return difference(a, b) <= 1e-5F; }

TEST(MtpLayers, AreFoundUnderEachSpellingAndAreNoPartOfTheModel) {
  LoadedModel without(golden("qwen2"));
  const auto text = testing::some_tokens(12, without.model->config().vocab_size, 7);
  const std::vector<float> expected = without.logits(text);
  const Said mimo = said_by(golden("mtp"));
  EXPECT_EQ(mimo.model, expected);
  const Said folder = said_by(numbered());
  EXPECT_EQ(folder.model, expected);
  EXPECT_TRUE(alike(folder.head, mimo.head));
  const Said as_qwen = said_by(beside());
  EXPECT_EQ(as_qwen.model, expected);
  EXPECT_TRUE(alike(as_qwen.head, mimo.head));
  const Said in_gguf = said_by(gguf());
  EXPECT_EQ(in_gguf.model, expected);
  EXPECT_TRUE(alike(in_gguf.head, mimo.head));
}

// Adds memory of its own to a file in the making.
TensorInfo& added(ModelFile::Parts& parts, const std::string& name, std::initializer_list<int64_t> dims) {
  TensorView view(nullptr, DType::kF32, dims);
  parts.copies.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(view.n_elements()) * sizeof(float)));
  view.data = parts.copies.back().get();
  return parts.tensors.emplace_back(TensorInfo{name, view});
}

int32_t last_that_attends(const ModelConfig& c) {
  for (auto l = static_cast<int32_t>(c.n_layers) - 1;; --l) {
    if (c.layers[static_cast<size_t>(l)].mixer != Mixer::kState) return l;
  }
}

struct Names {
  std::string layer, embed_norm, hidden_norm, fc, norm, key;
};

// A folder whose MTP layer is its last layer that attends once more, and reads what the embedding gives: rows of the
// embedding have a mean square of 1, so that the norm before fc leaves them, and fc passes them on.
std::shared_ptr<const ModelFile> again(const std::string& name, const Names& names) {
  const ModelConfig c = read_config(*golden(name)).value();
  ModelFile::Parts parts = parts_of(*golden(name));
  const std::string from = "layers." + std::to_string(last_that_attends(c)) + ".";
  const size_t n = parts.tensors.size();
  for (size_t i = 0; i < n; ++i) {
    TensorInfo t = parts.tensors[i];
    if (const size_t at = t.name.find(from); at != std::string::npos && t.name.find("mtp") == std::string::npos)
      parts.tensors.push_back({names.layer + t.name.substr(at + from.size()), t.view});
    if (t.name.ends_with("model.norm.weight") || t.name.ends_with("language_model.norm.weight"))
      parts.tensors.push_back({names.norm, t.view});
    if (!t.name.ends_with("embed_tokens.weight")) continue;
    TensorInfo& rows = added(parts, t.name, {c.vocab_size, c.width});
    for (int64_t row = 0; row < c.vocab_size; ++row) {
      const float* x = t.view.row_as<float>(row);
      double sum = 0;
      for (int64_t k = 0; k < c.width; ++k) sum += static_cast<double>(x[k]) * x[k];
      const double scale = std::sqrt(static_cast<double>(c.width) / sum);
      for (int64_t k = 0; k < c.width; ++k) rows.view.row_as<float>(row)[k] = static_cast<float>(x[k] * scale);
    }
    parts.tensors[i] = parts.tensors.back();
    parts.tensors.pop_back();
  }
  for (const std::string& norm : {names.embed_norm, names.hidden_norm}) {
    TensorInfo& t = added(parts, norm, {c.width});
    std::fill_n(t.view.row_as<float>(0), c.width, 1 - c.norm_offset);
  }
  TensorInfo& fc = added(parts, names.fc, {c.width, 2 * c.width});
  for (int64_t row = 0; row < c.width; ++row) fc.view.row_as<float>(row)[row] = 1;
  parts.metadata[names.key] = int64_t{1};
  return std::make_shared<const ModelFile>(std::move(parts));
}

// Logits of pairs of this text, whose states are numbers of the test's.
std::vector<float> drafted(const std::shared_ptr<const ModelFile>& layer, LoadedModel& m,
                           std::span<const TokenId> text) {
  auto head = EagleHead::load(layer, *m.model, *m.stream, kTinyEagleSizes);
  EXPECT_TRUE(head.ok()) << (head ? "" : head.error().message);
  if (!head) return {};
  PairsOfOne pairs(**head);
  std::vector<int32_t> rows(text.size());
  std::iota(rows.begin(), rows.end(), 0);
  for (const int32_t row : rows) {
    for (int32_t c = 0; c < (*head)->feature_len(); ++c)
      (*head)->features().row_as<float>(row)[c] = static_cast<float>((row * 31 + c * 7) % 17) / 8.0F - 1;
  }
  (*head)->fuse(static_cast<int32_t>(text.size()));
  const EagleHead::PassResult said = pairs.run(text, rows);
  return {said.logits.begin(), said.logits.end()};
}

class MtpOfEachKind : public ::testing::TestWithParam<const char*> {};

TEST_P(MtpOfEachKind, AnswersAsTheModelOfThatLayerAlone) {
  const std::string name = GetParam();
  const std::string after = std::to_string(read_config(*golden(name)).value().n_layers) + ".";
  const std::string layer = "model.layers." + after;
  const bool is_qwen = name.starts_with("qwen3");
  const auto file =
      again(name, is_qwen ? Names{"mtp.layers.0.", "mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight",
                                  "mtp.fc.weight", "mtp.norm.weight", "mtp_num_hidden_layers"}
                          : Names{layer, layer + "enorm.weight", layer + "hnorm.weight", layer + "eh_proj.weight",
                                  layer + "shared_head.norm.weight", "num_nextn_predict_layers"});
  LoadedModel whole(file);
  ASSERT_NE(whole.model, nullptr);
  std::vector<int32_t> others;
  for (int32_t l = 0; l < static_cast<int32_t>(whole.model->config().n_layers); ++l) {
    if (l != last_that_attends(whole.model->config())) others.push_back(l);
  }
  LoadedModel alone(file);
  alone.model = model_without(*whole.model, others, whole.model->options(), *alone.stream).value();
  const std::vector<TokenId> text = testing::some_tokens(11, whole.model->config().vocab_size, 7);
  const std::vector<float> expected = alone.logits(text, {.kv_dtype = DType::kF32});

  // Of the states fc reads nothing.
  EXPECT_LE(difference(drafted(mtp_layer_of(*file).value(), whole, text), expected), 1e-5F);
}

INSTANTIATE_TEST_SUITE_P(Families, MtpOfEachKind,
                         ::testing::Values("qwen3next", "qwen35", "qwen35_vl", "qwen35moe", "glm4moe", "glm4_moe_lite",
                                           "deepseek_v3"),
                         [](const auto& param_info) { return std::string(param_info.param); });

class MtpOfGguf : public ::testing::TestWithParam<const char*> {};

TEST_P(MtpOfGguf, IsReadFromTheBlockAfterTheLast) {
  const TempFolder folder;
  const auto file =
      std::make_shared<const ModelFile>(ModelFile::open(testing::tiny_with_mtp(folder, GetParam())).value());
  LoadedModel m(file);
  ASSERT_NE(m.model, nullptr);
  const std::vector<TokenId> text = testing::some_tokens(11, m.model->config().vocab_size, 7);
  const std::vector<float> expected = drafted(testing::tiny_mtp_file(m.model->config(), false), m, text);
  EXPECT_EQ(drafted(mtp_layer_of(*file).value(), m, text), expected);
}

INSTANTIATE_TEST_SUITE_P(Families, MtpOfGguf,
                         ::testing::Values("llama", "qwen3", "qwen3next", "qwen35", "glm4moe", "deepseek2"),
                         [](const auto& param_info) { return std::string(param_info.param); });

std::string refused(const std::shared_ptr<const ModelFile>& file) {
  const auto layer = mtp_layer_of(*file);
  if (!layer) return layer.error().message;
  LoadedModel m(file);
  const auto head = EagleHead::load(*layer, *m.model, *m.stream, kTinyEagleSizes);
  EXPECT_FALSE(EagleHead::sized_bytes(**layer, *m.model, *m.stream, kTinyEagleSizes).ok() || head.ok());
  return head ? "" : head.error().message;
}

TEST(MtpLayers, ThatAreMissingOrNotWholeAreRefusedByName) {
  const auto without = [](const std::string& name) {
    ModelFile::Parts parts = parts_of(*golden("mtp"));
    std::erase_if(parts.tensors, [&](const TensorInfo& t) { return t.name == "model.mtp_layers.0." + name; });
    return std::make_shared<const ModelFile>(std::move(parts));
  };
  for (const auto& [name, part] : std::map<std::string, std::string>{
           {"input_proj.weight", "no fc.weight"},
           {"token_layernorm.weight", "no embed_norm.weight"},
           {"hidden_layernorm.weight", "no hidden_norm.weight"},
           {"final_layernorm.weight", "no norm.weight"},
           {"input_layernorm.weight", R"(no tensor "model.layers.0.input_layernorm.weight)"},
           {"self_attn.v_proj.weight", R"(no tensor "model.layers.0.self_attn.v_proj)"},
           {"self_attn.v_proj.bias", R"(no tensor "model.layers.0.self_attn.v_proj.bias)"}}) {
    const std::string said = refused(without(name));
    EXPECT_NE(said.find(part), std::string::npos) << name << ": " << said;
  }
  EXPECT_NE(refused(golden("qwen2")).find("brings no MTP layer along"), std::string::npos);
  EXPECT_NE(refused(golden("gemma3")).find("brings no MTP layer along"), std::string::npos);
  ModelFile::Parts parts = parts_of(*golden("mtp"));
  for (TensorInfo& t : parts.tensors) t.name = replaced(t.name, {{"mtp_layers.0.token_layernorm", "mtp_emb_norm.0"}});
  std::erase_if(parts.tensors, [](const TensorInfo& t) { return t.name.starts_with("model.mtp_layers"); });
  EXPECT_NE(refused(std::make_shared<const ModelFile>(std::move(parts))).find("mtp_emb_norm.0"), std::string::npos)
      << "Ernie's";
  parts = parts_of(*golden("mtp"));
  parts.tensors.push_back(parts.tensors.back());
  parts.tensors.back().name = "model.mtp_layers.0.mlp.gate.weight";  // of experts
  EXPECT_NE(refused(std::make_shared<const ModelFile>(std::move(parts))).find("mlp.gate"), std::string::npos);
  // Of windows, which the layer would have too.
  parts = parts_of(*golden("mtp"));
  parts.metadata["use_sliding_window"] = true;
  parts.metadata["sliding_window"] = int64_t{16};
  parts.metadata["max_window_layers"] = int64_t{0};
  parts.metadata.erase("layer_types");
  EXPECT_NE(refused(std::make_shared<const ModelFile>(std::move(parts))).find("windows"), std::string::npos);
}

TEST(MtpLayers, ThatNoConfigurationNamesAreRefusedWithTheModel) {
  const auto loads = [](std::shared_ptr<const ModelFile> file, int64_t n) {
    ModelFile::Parts parts = parts_of(*file);
    const bool is_gguf = file->container() == Container::kGguf;
    parts.metadata[is_gguf ? "qwen2.nextn_predict_layers" : "num_nextn_predict_layers"] = n;
    ThreadTeam team(1);
    Stream stream(team);
    return load_model(std::make_shared<const ModelFile>(std::move(parts)), {}, stream).ok();
  };
  EXPECT_TRUE(loads(golden("mtp"), 1));
  EXPECT_FALSE(loads(golden("mtp"), 0)) << "a tensor that nobody reads";
  EXPECT_FALSE(loads(golden("mtp"), -1));
  EXPECT_FALSE(loads(golden("mtp"), int64_t{1} << 40));
  EXPECT_TRUE(loads(gguf(), 1));
  EXPECT_FALSE(loads(gguf(), 0));
  EXPECT_FALSE(loads(gguf(), 3)) << "all of its layers";
  EXPECT_FALSE(loads(gguf(), std::numeric_limits<int64_t>::min()));
  ModelFile::Parts parts = parts_of(*gguf());
  parts.metadata["qwen2.block_count"] = std::numeric_limits<int64_t>::min();
  EXPECT_FALSE(read_config(ModelFile(std::move(parts))).ok());
}

}  // namespace
}  // namespace ibid
