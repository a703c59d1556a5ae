#include "model/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "model/gguf_form.h"
#include "model/testing/loaded_model.h"

namespace ibid {
namespace {

using testing::LoadedModel;
using testing::low_bit_dtypes;
using testing::some_tokens;
using testing::tiny_architectures;
using testing::tiny_dtypes;
using testing::tiny_model_file;
using testing::TinyModelOptions;

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::string name_of(std::string_view architecture, DType weights, DType kv) {
  return std::string(architecture) + ", weights " + std::string(traits(weights).name) + ", KV " +
         std::string(traits(kv).name);
}

// Row C1: one token at a time over the cache gives the bits of one pass over all.
void expect_cached_equals_recomputed(std::string_view architecture, DType weights, DType kv, int64_t n_tokens) {
  LoadedModel m(TinyModelOptions{.architecture = architecture, .dtype = weights});
  const auto tokens = some_tokens(n_tokens, m.model->config().vocab_size);
  const OneSequenceOptions options{.kv_dtype = kv, .block_len = 8, .capacity = 128};
  const std::vector<float> whole = m.logits(tokens, options);
  for (float x : whole) ASSERT_TRUE(std::isfinite(x)) << name_of(architecture, weights, kv);
  EXPECT_TRUE(same_bits(m.logits(tokens, options, 1), whole)) << "one by one: " << name_of(architecture, weights, kv);
  EXPECT_TRUE(same_bits(m.logits(tokens, options, 7), whole)) << "by sevens: " << name_of(architecture, weights, kv);
}

TEST(Model, CachedDecodingEqualsFullRecomputationInEveryArchitecture) {
  for (std::string_view architecture : tiny_architectures()) {
    for (DType kv : {DType::kF32, DType::kF16, DType::kBF16}) {
      expect_cached_equals_recomputed(architecture, DType::kF32, kv, 40);
    }
  }
}

TEST(Model, CachedDecodingEqualsFullRecomputationForEveryWeightType) {
  for (DType dtype : tiny_dtypes()) expect_cached_equals_recomputed("llama", dtype, DType::kF16, 20);
  for (DType dtype : low_bit_dtypes()) expect_cached_equals_recomputed("llama", dtype, DType::kF16, 20);
}

TEST(SlowModel, CachedDecodingEqualsFullRecomputationForAllPairs) {
  for (std::string_view architecture : tiny_architectures()) {
    for (DType dtype : tiny_dtypes()) {
      for (DType kv : {DType::kF32, DType::kF16, DType::kBF16}) {
        expect_cached_equals_recomputed(architecture, dtype, kv, 100);
      }
    }
  }
}

// Row C6: where a block lies in memory is not where its tokens stand in the text.
TEST(Model, PhysicalPlacesOfBlocksDoNotMatter) {
  for (std::string_view architecture : tiny_architectures()) {
    LoadedModel m(TinyModelOptions{.architecture = architecture});
    const auto tokens = some_tokens(37, m.model->config().vocab_size);
    for (int32_t block_len : {8, 16, 32}) {
      const auto forwards = m.logits(tokens, {.block_len = block_len, .capacity = 64});
      EXPECT_TRUE(same_bits(m.logits(tokens, {.block_len = block_len, .capacity = 64, .backwards = true}), forwards));
      EXPECT_TRUE(same_bits(m.logits(tokens, {.block_len = 8, .capacity = 512}), forwards)) << "another block size";
    }
  }
}

// A row depends only on its own sequence: two sequences in one flat batch, and each alone.
TEST(Model, CompanyInTheBatchDoesNotMatter) {
  for (std::string_view architecture : tiny_architectures()) {
    LoadedModel m(TinyModelOptions{.architecture = architecture});
    const int64_t V = m.model->config().vocab_size;
    const auto a = some_tokens(13, V, 1), b = some_tokens(5, V, 2);
    const auto alone_a = m.logits(a, {.capacity = 16}), alone_b = m.logits(b, {.capacity = 16});
    // One pool of two blocks of 16; b has the first.
    OneSequence memory(*m.model, *m.stream, {.capacity = 32});
    std::vector<TokenId> tokens = a;
    tokens.insert(tokens.end(), b.begin(), b.end());
    std::vector<int32_t> positions, slots, rows;
    for (int32_t i = 0; i < 18; ++i) {
      positions.push_back(i < 13 ? i : i - 13);
      slots.push_back(i < 13 ? 16 + i : i - 13);
      rows.push_back(i);
    }
    const int32_t query_start[] = {0, 13, 18}, kv_len[] = {13, 5}, block_start[] = {0, 1, 2};
    const BlockId table[] = {BlockId{1}, BlockId{0}};
    ForwardBatch batch{.n_tokens = 18,
                       .n_sequences = 2,
                       .n_rows = 18,
                       .block_len = 16,
                       .tokens = tokens.data(),
                       .positions = positions.data(),
                       .slots = slots.data(),
                       .query_start = query_start,
                       .kv_len = kv_len,
                       .block_start = block_start,
                       .block_table = table,
                       .logit_rows = rows.data()};
    const std::vector<int32_t> no_states(18, -1);  // none are kept
    batch.state_in = batch.state_out = no_states.data();
    std::vector<float> logits(static_cast<size_t>(18 * V));
    m.model->forward(*m.stream, batch, memory.kv(), TensorView(logits.data(), DType::kF32, {18, V}), {},
                     {.slot_bytes = m.model->state_layout().slot_bytes()});
    std::vector<float> expected = alone_a;
    expected.insert(expected.end(), alone_b.begin(), alone_b.end());
    EXPECT_TRUE(same_bits(logits, expected)) << architecture;
  }
}

// A file whose weights a device cannot multiply is the world's mistake, not ours: a sentence names the tensor.
TEST(Model, AQuantisedWeightWithoutAProductOnTheDeviceIsRefusedAtLoad) {
  ThreadTeam host(1);
  Stream cuda(Device::kCuda, nullptr,
              {[](size_t bytes) { return static_cast<std::byte*>(std::malloc(bytes)); },
               [](std::byte* p, size_t) { std::free(p); }},
              host);
  const auto loaded = load_model(testing::tiny_model_file({.architecture = "llama", .dtype = DType::kQ8_0}),
                                 {.step_tokens = 8, .max_rows = 8}, cuda);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(loaded.error().message.find("CUDA has no product for weights of type Q8_0"), std::string::npos)
      << loaded.error().message;
  EXPECT_EQ(loaded.error().where, "output.weight");
}

// The last layer computes only the rows whose logits are wanted; asking for fewer changes none of them.
TEST(Model, AskingForFewerRowsDoesNotMatter) {
  for (std::string_view architecture : tiny_architectures()) {
    LoadedModel m(TinyModelOptions{.architecture = architecture});
    const auto V = static_cast<size_t>(m.model->config().vocab_size);
    const auto tokens = some_tokens(20, static_cast<int64_t>(V));
    const std::vector<float> all = m.logits(tokens);
    OneSequence sequence(*m.model, *m.stream, {.capacity = 32});
    sequence.append(std::span(tokens).first(11), nullptr);
    sequence.append(std::span(tokens).subspan(11), [&](int64_t first, const TensorView& rows) {
      ASSERT_EQ(first, 11);
      EXPECT_EQ(std::memcmp(rows.data, &all[11 * V], 9 * V * sizeof(float)), 0) << architecture;
    });
  }
}

TEST(Model, TheNumberOfThreadsDoesNotMatter) {
  for (std::string_view architecture : tiny_architectures()) {
    const TinyModelOptions options{.architecture = architecture, .dtype = DType::kQ4_0};
    LoadedModel one(tiny_model_file(options)), three(tiny_model_file(options), {.step_tokens = 64, .max_rows = 64}, 3);
    const auto tokens = some_tokens(40, one.model->config().vocab_size);
    EXPECT_TRUE(same_bits(three.logits(tokens), one.logits(tokens))) << architecture;
  }
}

// Row C2: prefill of (1, 16, 128), then 8 decodes, against the full pass.
TEST(Model, SixteenTokensThenEightDecodesEqualTheFullPass) {
  ModelConfig config = testing::tiny_config({.architecture = "llama"});
  LoadedModel m(TinyModelOptions{.architecture = "llama"});
  const auto tokens = some_tokens(24, config.vocab_size);
  OneSequence sequence(*m.model, *m.stream, {.capacity = 24});
  std::vector<float> out;
  auto keep = [&](int64_t first, const TensorView& rows) {
    EXPECT_EQ(first, sequence.n_tokens());
    EXPECT_EQ(rows.dim[1], config.vocab_size);
    out.insert(out.end(), rows.row_as<const float>(0), rows.row_as<const float>(0) + rows.n_elements());
  };
  sequence.append(std::span(tokens).first(16), keep);
  for (size_t i = 16; i < 24; ++i) {
    sequence.append(std::span(tokens).subspan(i, 1), keep);
    EXPECT_EQ(sequence.n_tokens(), static_cast<int64_t>(i) + 1) << "the cache grows by one position a step";
  }
  EXPECT_TRUE(same_bits(out, m.logits(tokens)));
}

// Row C3: a model whose two KV heads are written out once per query head gives the same bits from three times the
// cache.
TEST(Model, ReplicatedKeyValueHeadsGiveTheSameBits) {
  const std::shared_ptr<const ModelFile> grouped = tiny_model_file({.architecture = "qwen2"});
  ModelConfig config = testing::tiny_config({.architecture = "qwen2"});
  const LayerConfig first = config.layers.front();
  const int64_t group = first.n_heads / first.n_kv_heads, head_bytes = first.key_len * config.width * 4;
  for (LayerConfig& layer : config.layers) layer.n_kv_heads = layer.n_heads;
  ModelFile::Parts parts;
  parts.metadata = metadata_of(config);
  for (const TensorInfo& t : grouped->tensors()) {
    const bool repeats = t.name.find("attn_k.") != std::string::npos || t.name.find("attn_v.") != std::string::npos;
    const int64_t unit = t.view.rank == 2 ? head_bytes : first.key_len * 4, n = static_cast<int64_t>(t.bytes());
    auto copy = std::make_unique<std::byte[]>(static_cast<size_t>(repeats ? n * group : n));
    for (int64_t at = 0; at < (repeats ? n * group : n); at += unit) {
      const int64_t from = repeats ? at / unit / group * unit : at;
      std::memcpy(copy.get() + at, t.view.data + from, static_cast<size_t>(std::min(unit, n - from)));
    }
    TensorView view = t.view;
    view.data = copy.get();
    if (repeats) view.dim[0] *= group;
    if (repeats && view.rank == 1) view.row_stride_bytes *= group;
    parts.tensors.push_back({t.name, view});
    parts.copies.push_back(std::move(copy));
  }
  LoadedModel few(grouped), all(std::make_shared<ModelFile>(std::move(parts)));
  ASSERT_NE(all.model, nullptr);
  const auto tokens = some_tokens(30, config.vocab_size);
  EXPECT_TRUE(same_bits(all.logits(tokens), few.logits(tokens)));
  OneSequence small(*few.model, *few.stream, {.kv_dtype = DType::kF32}),
      large(*all.model, *all.stream, {.kv_dtype = DType::kF32});
  EXPECT_EQ(large.kv()[0].layer_bytes, group * small.kv()[0].layer_bytes);
}

TEST(Model, LongropeChoosesItsFactorsOnceByTheConfiguredContext) {
  const auto file = tiny_model_file({.architecture = "phi3", .context_len = 256});  // trained for 64
  LoadedModel short_one(file, {.context_len = 64, .step_tokens = 64, .max_rows = 64});
  LoadedModel long_one(file, {.context_len = 65, .step_tokens = 64, .max_rows = 64});
  LoadedModel longest(file, {.step_tokens = 64, .max_rows = 64});
  const auto tokens = some_tokens(10, 96);
  EXPECT_FALSE(same_bits(short_one.logits(tokens), long_one.logits(tokens)));
  EXPECT_TRUE(same_bits(longest.logits(tokens), long_one.logits(tokens)));
  EXPECT_NE(short_one.model->rope_signature(), long_one.model->rope_signature());
  EXPECT_EQ(longest.model->rope_signature(), long_one.model->rope_signature());
}

TEST(Model, AContextBeyondTheModelsIsRefused) {
  ThreadTeam team(1);
  Stream stream(team);
  const auto refused = load_model(tiny_model_file({.context_len = 512}), {.context_len = 513}, stream);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("513"), std::string::npos) << refused.error().message;
}

TEST(Model, CountsItsBytes) {
  const auto file = tiny_model_file({.architecture = "llama", .dtype = DType::kQ4_0});
  LoadedModel m(file);
  const MemoryUse& use = m.model->memory();
  EXPECT_GT(use.scratch_bytes, 0);
  EXPECT_GE(use.mapped_bytes + use.repacked_bytes, static_cast<int64_t>(file->tensor_bytes()));
  EXPECT_EQ(use.workspace_bytes, static_cast<int64_t>(m.stream->workspace_bytes()));
}

// Row K18: the loader's memory equals the formulas.
TEST(Model, SizingCountsWhatLoadingTakesAndReadsNoWeight) {
  std::vector<DType> dtypes(tiny_dtypes().begin(), tiny_dtypes().end());
  dtypes.insert(dtypes.end(), low_bit_dtypes().begin(), low_bit_dtypes().end());
  for (DType dtype : dtypes) {
    const auto file = tiny_model_file({.architecture = "llama", .dtype = dtype});
    LoadedModel m(file);
    ModelOptions options = m.model->options();
    options.sized_only = true;
    const auto sized = load_model(file, options, *m.stream).value();
    const MemoryUse &a = sized->memory(), &b = m.model->memory();
    EXPECT_EQ(a.repacked_bytes, b.repacked_bytes) << traits(dtype).name;
    EXPECT_EQ(a.mapped_bytes, b.mapped_bytes) << traits(dtype).name;
    EXPECT_EQ(a.scratch_bytes, b.scratch_bytes);
    EXPECT_EQ(a.workspace_bytes, b.workspace_bytes);
    EXPECT_GT(a.repacked_bytes, 0);
  }
}

TEST(Model, ParameterCountsAreThoseOfTheTensors) {
  for (std::string_view architecture : tiny_architectures()) {
    const auto file = tiny_model_file({.architecture = architecture});
    LoadedModel m(file);
    int64_t all = 0, kv = 0;
    for (const TensorInfo& t : file->tensors()) {
      if (t.name.starts_with("rope_")) continue;
      all += t.view.n_elements();
      for (const char* of_kv :
           {"attn_k.weight", "attn_v.weight", "attn_kv_a_mqa.weight", "attn_k_b.weight", "attn_v_b.weight"}) {
        if (t.name.ends_with(of_kv)) kv += t.view.n_elements();
      }
    }
    EXPECT_EQ(m.model->config().n_parameters(), all) << architecture;
    if (m.model->config().fused_qkv) continue;
    EXPECT_EQ(m.model->config().kv_projection_parameters(), kv) << architecture;
  }
}

TEST(Model, ProgressRunsToOneAndNeverBack) {
  ThreadTeam team(1);
  Stream stream(team);
  double last = 0;
  const auto model = load_model(tiny_model_file({}), {}, stream, [&last](double share) {
    EXPECT_GE(share, last);
    last = share;
  });
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(last, 1.0);
}

TEST(TinyModel, IsTheSameFileFromMemoryAndFromBytes) {
  const std::string bytes = testing::tiny_gguf({.architecture = "phi3", .dtype = DType::kQ8_0, .tokenizer = true});
  EXPECT_EQ(bytes, testing::tiny_gguf({.architecture = "phi3", .dtype = DType::kQ8_0, .tokenizer = true}));
  EXPECT_EQ(bytes.substr(0, 4), "GGUF");
}

}  // namespace
}  // namespace ibid
