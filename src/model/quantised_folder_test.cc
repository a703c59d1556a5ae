// Folders with a quantization_config (tests/golden/quantised, made by tools/make_quantised_goldens.py): each matrix is
// what the format's own package makes of it, the models run, and recipes and tensors that lie end in a sentence.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/sha256.h"
#include "format/quantised_matrix.h"
#include "model/testing/loaded_model.h"
#include "model/testing/parts.h"
#include "source_paths.h"
#include "tensor/dequantise.h"
#include "tensor/float8.h"
#include "tensor/half.h"

namespace ibid {
namespace {

using testing::LoadedModel;

std::string quantised_path(const std::string& name = "") {
  return source_dir() + "/tests/golden/quantised" + (name.empty() ? "" : "/" + name);
}

struct Expected {
  std::string folder, matrix, dtype, digest;
};

const std::vector<Expected>& expected_matrices() {
  static const std::vector<Expected> all = [] {
    std::vector<Expected> lines;
    std::ifstream file(quantised_path("digests.txt"));
    Expected e;
    while (file >> e.folder >> e.matrix >> e.dtype >> e.digest) lines.push_back(e);
    return lines;
  }();
  return all;
}

std::vector<std::string> quantised_folders() {
  std::vector<std::string> names;
  for (const Expected& e : expected_matrices()) {
    if (names.empty() || names.back() != e.folder) names.push_back(e.folder);
  }
  return names;
}

// [N, K] of a matrix of the tiny model.
std::pair<int64_t, int64_t> sizes_of(const std::string& name) {
  const auto has = [&name](const char* part) { return name.find(part) != name.npos; };
  if (has("k_proj") || has("v_proj")) return {32, 64};
  if (has("gate_proj") || has("up_proj")) return {160, 64};
  return has("down_proj") ? std::pair<int64_t, int64_t>{64, 160} : std::pair<int64_t, int64_t>{64, 64};
}

ModelFile open_quantised(const std::string& folder) {
  Result<ModelFile> file = ModelFile::open(quantised_path(folder));
  EXPECT_TRUE(file.ok()) << (file ? "" : file.error().message);
  return std::move(file).value();
}

// The matrix as floats, and the type of its rows.
std::vector<float> floats_of(const ModelFile& file, const std::string& name, DType* dtype = nullptr) {
  const auto [N, K] = sizes_of(name);
  const QuantRecipe recipe = read_quant_recipe(file).value();
  const Result<QuantisedMatrix> matrix = QuantisedMatrix::find(file, recipe, name, N, K);
  EXPECT_TRUE(matrix.ok()) << (matrix ? "" : matrix.error().message);
  std::vector<float> values(static_cast<size_t>(N * K));
  if (!matrix) return values;
  if (dtype != nullptr) *dtype = matrix.value().dtype();
  std::vector<std::byte> rows(static_cast<size_t>(N * row_bytes(matrix.value().dtype(), K)));
  matrix.value().rows(0, 7, rows.data());  // parts are as good as the whole
  matrix.value().rows(7, N, rows.data() + 7 * row_bytes(matrix.value().dtype(), K));
  dequantise(TensorView(rows.data(), matrix.value().dtype(), {N, K}), values.data());
  return values;
}

float rounded_to(float value, const std::string& dtype) {
  if (dtype == "F16") return half_to_float(float_to_half(value));
  return dtype == "BF16" ? bf16_to_float(float_to_bf16(value)) : value;
}

TEST(Float8, ANumberBecomesTheNearestCodeWithTiesToEven) {
  for (int i = 0; i < 0x7e; ++i) {
    const float low = e4m3_to_float(static_cast<uint8_t>(i)), high = e4m3_to_float(static_cast<uint8_t>(i + 1));
    const float middle = 0.5f * (low + high);
    for (const auto& [x, code] : {std::pair(low, i),
                                  {std::nextafterf(middle, 0.0f), i},
                                  {middle, i % 2 == 0 ? i : i + 1},
                                  {std::nextafterf(middle, 1000.0f), i + 1}}) {
      EXPECT_EQ(float_to_e4m3(x), code) << x;
      EXPECT_EQ(float_to_e4m3(-x), code | 0x80) << x;
    }
  }
  for (const float x : {448.0f, 449.0f, 1e30f, std::numeric_limits<float>::infinity()})
    EXPECT_EQ(float_to_e4m3(x), 0x7e);
  EXPECT_EQ(float_to_e4m3(std::numeric_limits<float>::quiet_NaN()), 0x7e);
}

TEST(Float8, EveryCodeIsTheNumberThatItsBitsSpell) {
  for (int i = 0; i < 256; ++i) {
    const auto code = static_cast<uint8_t>(i);
    const int sign = i < 128 ? 1 : -1, e4 = i >> 3 & 15, e5 = i >> 2 & 31;
    const double e4m3 = e4 == 0 ? std::ldexp(i & 7, -9) : std::ldexp(8 + (i & 7), e4 - 10);
    const double e5m2 = e5 == 0 ? std::ldexp(i & 3, -16) : std::ldexp(4 + (i & 3), e5 - 17);
    if ((i & 127) == 127) {
      EXPECT_TRUE(std::isnan(e4m3_to_float(code))) << i;
    } else {
      EXPECT_EQ(e4m3_to_float(code), static_cast<float>(sign * e4m3)) << i;
    }
    if (e5 < 31) {
      EXPECT_EQ(e5m2_to_float(code), static_cast<float>(sign * e5m2)) << i;
    } else {
      EXPECT_EQ(std::isinf(e5m2_to_float(code)), (i & 3) == 0) << i;
    }
    if (i < 255) {
      EXPECT_EQ(e8m0_to_float(code), static_cast<float>(std::ldexp(1.0, i - 127))) << i;
    } else {
      EXPECT_TRUE(std::isnan(e8m0_to_float(code)));
    }
  }
}

TEST(QuantisedFolders, EachMatrixIsWhatItsPackageMakesOfIt) {
  ASSERT_EQ(expected_matrices().size(), 32u * 7);
  for (const std::string& folder : quantised_folders()) {
    const ModelFile file = open_quantised(folder);
    for (const Expected& e : expected_matrices()) {
      if (e.folder != folder) continue;
      ASSERT_TRUE(QuantisedMatrix::is_in(file, read_quant_recipe(file).value(), e.matrix)) << folder << e.matrix;
      std::vector<float> values = floats_of(file, e.matrix);
      for (float& v : values) v = rounded_to(v, e.dtype) + 0.0f;
      EXPECT_EQ(sha256_hex({reinterpret_cast<const char*>(values.data()), values.size() * 4}), e.digest)
          << folder << " " << e.matrix;
    }
  }
}

TEST(QuantisedFolders, RowsStayIntegersWhereTheyAreExact) {
  const std::map<std::string, DType> types = {
      {"gptq4", DType::kQ4_0},         {"gptq4_zeros", DType::kQ5_0},   {"gptq4_v2", DType::kQ5_0},
      {"gptq4_order", DType::kF16},    {"gptq8", DType::kQ8_0},         {"gptq8_zeros", DType::kF16},
      {"gptq3_zeros", DType::kQ4_0},   {"gptq2_dynamic", DType::kQ4_0}, {"awq4", DType::kQ5_0},
      {"ct4", DType::kQ4_0},           {"ct4_zeros", DType::kQ5_0},     {"ct8", DType::kQ8_0},
      {"ct3", DType::kQ4_0},           {"ct_int8", DType::kQ8_0},       {"ct_fp8", DType::kBF16},
      {"ct_fp8_tensor", DType::kBF16}, {"ct_fp8_block", DType::kBF16},  {"ct_nvfp4", DType::kBF16},
      {"ct_mxfp4", DType::kMXFP4},     {"ct_mxfp8", DType::kBF16},      {"fp8_block", DType::kBF16},
      {"fp8_tensor", DType::kBF16},    {"fbgemm", DType::kBF16},        {"modelopt_nvfp4", DType::kBF16},
      {"bnb_nf4", DType::kBF16},       {"bnb_nf4_nested", DType::kF32}, {"bnb_fp4", DType::kF16},
      {"bnb_int8", DType::kF16},       {"mlx4", DType::kQ4_1},          {"mlx5", DType::kQ5_1},
      {"mlx6", DType::kF16},           {"mlx8", DType::kBF16}};
  for (const std::string& folder : quantised_folders()) {
    DType dtype = DType::kI8;
    floats_of(open_quantised(folder), "model.layers.0.self_attn.q_proj.weight", &dtype);
    EXPECT_EQ(traits(dtype).name, traits(types.at(folder)).name) << folder;
  }
}

// What a loader gathered, in memory of its own, to be changed.
ModelFile::Parts parts_of(const ModelFile& file) {
  ModelFile::Parts parts;
  parts.container = Container::kSafetensors;
  parts.path = "folder";
  parts.metadata = file.metadata();
  parts.quant_recipe_json = file.quant_recipe_json();
  for (const TensorInfo& t : file.tensors()) {
    auto copy = std::make_unique<std::byte[]>(t.bytes());
    std::memcpy(copy.get(), t.view.data, t.bytes());
    parts.tensors.push_back(t);
    parts.tensors.back().view.data = copy.get();
    parts.copies.push_back(std::move(copy));
  }
  return parts;
}

// The same model with matrices of F32.
std::shared_ptr<const ModelFile> plain_model(const std::string& folder) {
  const ModelFile file = open_quantised(folder);
  ModelFile::Parts parts = parts_of(file);
  parts.quant_recipe_json.clear();
  std::erase_if(parts.tensors, [](const TensorInfo& t) { return t.name.find("_proj.") != t.name.npos; });
  for (const Expected& e : expected_matrices()) {
    if (e.folder != folder) continue;
    const std::vector<float> values = floats_of(file, e.matrix);
    auto copy = std::make_unique<std::byte[]>(values.size() * 4);
    std::memcpy(copy.get(), values.data(), values.size() * 4);
    const auto [N, K] = sizes_of(e.matrix);
    parts.tensors.push_back({e.matrix, TensorView(copy.get(), DType::kF32, {N, K})});
    parts.copies.push_back(std::move(copy));
  }
  return std::make_shared<ModelFile>(std::move(parts));
}

TEST(QuantisedFolders, ModelsAnswerAsTheirDequantisedWeightsDo) {
  const std::vector<TokenId> tokens = testing::some_tokens(24, 32);
  for (const std::string& folder : quantised_folders()) {
    LoadedModel m(std::make_shared<ModelFile>(open_quantised(folder))), plain(plain_model(folder));
    ASSERT_TRUE(m.model != nullptr && plain.model != nullptr) << folder;
    const std::vector<float> got = m.logits(tokens), want = plain.logits(tokens);
    ASSERT_EQ(got.size(), want.size());
    double sum = 0, size = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      sum += std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
      size += std::fabs(static_cast<double>(want[i]));
    }
    EXPECT_LE(sum, 0.05 * size) << folder;  // activations of 8 bits, or BF16
    EXPECT_EQ(m.logits(tokens, {}, 1), got) << folder;
  }
}

// The sentence that a folder is refused with; empty: it is not.
std::string quantised_error(ModelFile::Parts parts, bool sized_only = false) {
  ThreadTeam team(1);
  Stream stream(team);
  const auto file = std::make_shared<ModelFile>(std::move(parts));
  const auto model = load_model(file, {.step_tokens = 8, .max_rows = 8, .sized_only = sized_only}, stream);
  return model ? "" : model.error().message;
}

uint8_t nearest_e4m3(float value) {
  int best = 0;
  for (int code = 0; code < 256; ++code) {
    const float distance = std::fabs(e4m3_to_float(static_cast<uint8_t>(code)) - value);
    if (distance < std::fabs(e4m3_to_float(static_cast<uint8_t>(best)) - value)) best = code;
  }
  return static_cast<uint8_t>(best);
}

void add_tensor(ModelFile::Parts& parts, const std::string& name, DType dtype, std::initializer_list<int64_t> dims,
                const std::vector<std::byte>& bytes, EightBits eight_bits = EightBits::kInteger) {
  auto copy = std::make_unique<std::byte[]>(bytes.size());
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  parts.tensors.push_back({name, TensorView(copy.get(), dtype, dims), eight_bits});
  parts.copies.push_back(std::move(copy));
}

// Experts, whose matrices are tensors of their own, and latent attention, whose matrix of keys and values is split.
TEST(QuantisedFolders, ModelsOfFp8HaveTheBitsOfBf16) {
  for (const char* const folder : {"deepseek_v3", "qwen3moe", "qwen3"}) {
    Result<ModelFile> opened = ModelFile::open(source_dir() + "/tests/golden/" + folder);
    ASSERT_TRUE(opened.ok()) << folder;
    const ModelFile& file = opened.value();
    ModelFile::Parts quantised = parts_of(file), plain = parts_of(file);
    quantised.quant_recipe_json = R"({"quant_method":"fp8","weight_block_size":[24,20]})";
    int n_matrices = 0;
    for (const TensorInfo& t : file.tensors()) {
      if (t.view.rank != 2 || !t.name.ends_with("_proj.weight")) continue;
      ++n_matrices;
      const int64_t N = t.view.dim[0], K = t.view.dim[1], across = (K + 19) / 20;
      std::vector<float> values(static_cast<size_t>(N * K));
      dequantise(t.view, values.data());
      std::vector<std::byte> codes(values.size()), halves(values.size() * 2);
      std::vector<std::byte> scales(static_cast<size_t>((N + 23) / 24 * across * 4));
      for (int64_t i = 0; i < N * K; ++i) {
        const int64_t block = i / K / 24 * across + i % K / 20;
        const float scale = 0.001f + 0.0003f * static_cast<float>(block % 7);
        std::memcpy(scales.data() + block * 4, &scale, 4);
        const uint8_t code = nearest_e4m3(values[static_cast<size_t>(i)] / scale);
        codes[static_cast<size_t>(i)] = std::byte{code};
        const uint16_t half = float_to_bf16(e4m3_to_float(code) * scale);
        std::memcpy(halves.data() + i * 2, &half, 2);
      }
      const auto is_it = [&t](const TensorInfo& other) { return other.name == t.name; };
      std::erase_if(quantised.tensors, is_it);
      std::erase_if(plain.tensors, is_it);
      add_tensor(quantised, t.name, DType::kI8, {N, K}, codes, EightBits::kE4M3);
      add_tensor(quantised, t.name + "_scale_inv", DType::kF32, {(N + 23) / 24, across}, scales);
      add_tensor(plain, t.name, DType::kBF16, {N, K}, halves);
    }
    EXPECT_GT(n_matrices, 10) << folder;
    LoadedModel a(std::make_shared<ModelFile>(std::move(quantised))), b(std::make_shared<ModelFile>(std::move(plain)));
    ASSERT_TRUE(a.model != nullptr && b.model != nullptr) << folder;
    const std::vector<TokenId> tokens = testing::some_tokens(20, a.model->config().vocab_size);
    EXPECT_EQ(a.logits(tokens), b.logits(tokens)) << folder;
  }
}

TEST(QuantisedFolders, TensorsThatLieGiveASentence) {
  for (const std::string& folder : quantised_folders()) {
    const ModelFile file = open_quantised(folder);
    for (const TensorInfo& t : file.tensors()) {
      if (t.name.find("o_proj.") == t.name.npos) continue;
      const auto changed = [&](const auto& change) {
        ModelFile::Parts parts = parts_of(file);
        const auto it = std::ranges::find(parts.tensors, t.name, &TensorInfo::name);
        change(parts, it);
        const std::string error = quantised_error(std::move(parts));
        EXPECT_EQ(error.find("CHECK"), error.npos) << error;
        return error;
      };
      // What is left out, where a product needs it.
      const auto ends = [&t](std::string_view end) { return t.name.ends_with(end); };
      const bool is_beside =
          ends("input_scale") || ends("g_idx") || ends("weight_shape") || ends("weight_format") || ends("quant_map") ||
          (ends(".qzeros") && folder.find("zeros") == folder.npos && folder != "awq4" && folder != "gptq4_v2");
      const std::string without = changed([](auto& parts, auto it) { parts.tensors.erase(it); });
      // Without its zeros a matrix is a symmetric one: the recipe does not name which are.
      const bool may_be_absent = is_beside || ends("weight_zero_point") || ends("weight_global_scale");
      EXPECT_TRUE(may_be_absent || !without.empty()) << folder << " without " << t.name;
      // Longer, of another shape, of another type: over memory of zeros that is long enough.
      for (int kind = 0; kind < 4; ++kind) {
        const std::string error = changed([&](auto& parts, auto it) {
          TensorView& v = it->view;
          if (kind == 0) v.dim[0] += 1;
          if (kind == 1) v.dim[static_cast<size_t>(v.rank - 1)] *= 2;
          if (kind == 2) v.dtype = DType::kI64;
          if (kind == 3) v.rank = v.rank == 1 ? 2 : 1;
          if (kind == 3 && v.rank == 1) v.dim = {v.dim[0] * v.dim[1], 1, 1, 1};
          if (kind == 3 && v.rank == 2) v.dim = {v.dim[0], 1, 1, 1};
          v.row_stride_bytes = row_bytes(v.dtype, v.row_len());
          auto zeros = std::make_unique<std::byte[]>(static_cast<size_t>(v.n_rows() * v.row_stride_bytes));
          v.data = zeros.get();
          parts.copies.push_back(std::move(zeros));
        });
        EXPECT_TRUE(kind == 3 || is_beside || !error.empty()) << folder << " " << t.name << kind;
      }
    }
  }
}

TEST(QuantisedFolders, AnOrderOutOfRangeGivesASentence) {
  for (const int32_t group : {-1, 2, INT32_MAX, INT32_MIN}) {
    ModelFile::Parts parts = parts_of(open_quantised("gptq4_order"));
    const auto order = std::ranges::find(parts.tensors, "model.layers.0.self_attn.q_proj.g_idx", &TensorInfo::name);
    std::memcpy(order->view.data + 20, &group, 4);
    EXPECT_NE(quantised_error(std::move(parts)).find("gives input 5 group " + std::to_string(group)),
              std::string::npos);
  }
}

TEST(QuantisedFolders, SizesAreThoseOfALoad) {
  for (const std::string& folder : quantised_folders()) {
    const auto file = std::make_shared<ModelFile>(open_quantised(folder));
    LoadedModel m(file), sized(file, {.step_tokens = 128, .max_rows = 128, .sized_only = true});
    ASSERT_TRUE(m.model != nullptr && sized.model != nullptr) << folder;
    EXPECT_EQ(m.model->memory().repacked_bytes, sized.model->memory().repacked_bytes) << folder;
  }
}

TEST(QuantisedFolders, ATensorThatNothingReadsIsRefused) {
  ModelFile::Parts parts = parts_of(open_quantised("gptq4"));
  static float ones[64];
  std::fill_n(ones, 64, 1.0f);
  parts.tensors.push_back({"model.layers.0.self_attn.q_proj.pre_quant_scale", TensorView(ones, DType::kF32, {64})});
  EXPECT_NE(quantised_error(std::move(parts)).find("pre_quant_scale"), std::string::npos);
  for (const float bias : {0.0f, 1.0f}) {  // old writers of GPTQ add one of zeros
    ModelFile::Parts with_bias = parts_of(open_quantised("gptq4"));
    ones[3] = bias;
    std::fill_n(ones, 64, 0.0f);
    ones[3] = bias;
    with_bias.tensors.push_back({"model.layers.0.self_attn.q_proj.bias", TensorView(ones, DType::kF32, {64})});
    EXPECT_EQ(quantised_error(std::move(with_bias)).empty(), bias == 0) << bias;
  }
}

TEST(QuantisedFolders, RecipesThatAreNotReadAreRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"bits":4})", "no quant_method"},
      {R"({"quant_method":4})", "quant_method"},
      {R"({"quant_method":"aqlm"})", "\"aqlm\""},
      {R"({"quant_method":"exl2"})", "\"exl2\""},
      {R"({"quant_method":"hqq"})", "\"hqq\""},
      {R"({"quant_method":"mxfp4"})", "gpt-oss"},
      {R"({"quant_method":"gptq","bits":4,"group_size":0})", "group_size of 0"},
      {R"({"quant_method":"gptq","bits":4,"group_size":-2})", "group_size of -2"},
      {R"({"quant_method":"gptq","bits":"4"})", "bits"},
      {R"({"quant_method":"gptq","bits":5})", "bits \"5\""},
      {R"({"quant_method":"gptq","sym":1})", "sym"},
      {R"({"quant_method":"gptq","checkpoint_format":"marlin"})", "\"marlin\""},
      {R"({"quant_method":"gptq","checkpoint_format":"bitblas"})", "\"bitblas\""},
      {R"({"quant_method":"gptq","checkpoint_format":"gptq_p"})", "\"gptq_p\""},
      {R"({"quant_method":"gptq","is_marlin_format":true})", "\"marlin\""},
      {R"({"quant_method":"gptq","pack_dtype":"int8"})", "pack_dtype \"int8\""},
      {R"({"quant_method":"gptq","sym":true,"dynamic":{"(a+)+$":{"sym":false}}})", "(a+)+$"},
      {R"({"quant_method":"awq","version":"gemv"})", "version \"gemv\""},
      {R"({"quant_method":"awq","w_bit":3})", "bits \"3\""},
      {R"({"quant_method":"auto-round","packing_format":"auto_round:exllama"})", "packing_format"},
      {R"({"quant_method":"compressed-tensors","format":"marlin-24"})", "\"marlin-24\""},
      {R"({"quant_method":"compressed-tensors","config_groups":{"g":{"format":"mxfp6-pack-quantized"}}})", "mxfp6"},
      {R"({"quant_method":"compressed-tensors","transform_config":{"config_groups":{}}})", "rotated"},
      {R"({"quant_method":"compressed-tensors","sparsity_config":{"format":"sparse-24-bitmask"}})", "sparse-24"},
      {R"({"quant_method":"compressed-tensors","config_groups":{"g":{"weights":{"group_size":0}}}})",
       "group_size of 0"},
      {R"({"quant_method":"compressed-tensors","config_groups":{"g":{"weights":{"num_bits":99}}}})", "bits \"99\""},
      {R"({"quant_method":"fp8","weight_block_size":[0,128]})", "weight_block_size"},
      {R"({"quant_method":"fp8","weight_block_size":[128]})", "weight_block_size"},
      {R"({"quant_method":"fp8","expert_dtype":"fp4"})", "expert_dtype \"fp4\""},
      {R"({"quant_method":"modelopt","quant_algo":"NVFP4_SVD"})", "\"NVFP4_SVD\""},
      {R"({"quant_method":"mlx","mode":"nvfp4"})", "mode \"nvfp4\""},
  };
  const ModelFile file = open_quantised("gptq4");
  for (const auto& [json, part] : cases) {
    ModelFile::Parts parts = parts_of(file);
    parts.quant_recipe_json = json;
    EXPECT_NE(quantised_error(std::move(parts)).find(part), std::string::npos) << json;
  }
}

TEST(QuantisedFolders, ARecipeIsFoundWhereItsWriterPutsIt) {
  const auto method_of = [](const RecipeTexts& texts) {
    const Result<std::string> json = recipe_json(texts, "folder");
    return json ? json.value() : "error: " + json.error().message;
  };
  const std::string gptq = R"({"quant_method":"gptq","bits":4})";
  EXPECT_EQ(method_of({.config = "{}"}), "");
  EXPECT_EQ(method_of({.config = R"({"quantization_config":null})"}), "");
  EXPECT_EQ(method_of({.config = R"({"quantization_config":{}})"}), "");
  EXPECT_EQ(method_of({.config = R"({"quantization_config":)" + gptq + "}"}), gptq);
  EXPECT_EQ(method_of({.config = R"({"text_config":{"quantization_config":)" + gptq + "}}"}), gptq);
  EXPECT_EQ(method_of({.config = "{}", .quantize_config = R"({"bits":4})"}), gptq);
  EXPECT_EQ(method_of({.config = "{}", .quant_config = R"({"w_bit":4})"}), R"({"quant_method":"awq","w_bit":4})");
  const std::string modelopt = R"({"quant_method":"modelopt","quant_algo":"FP8"})";
  EXPECT_EQ(method_of({.config = R"({"quantization_config":{"quant_method":"modelopt"}})",
                       .hf_quant_config = R"({"producer":{},"quantization":{"quant_algo":"FP8"}})"}),
            modelopt);
  EXPECT_EQ(method_of({.config = R"({"quantization_config":)" + modelopt + "}"}), modelopt);
  EXPECT_EQ(method_of({.config = R"({"quantization":{"bits":4},"quantization_config":{"bits":4}})"}),
            R"({"quant_method":"mlx","bits":4})");
  for (const char* bad : {R"({"quantization_config":4})", "[", R"({"quantization_config":[1]})"}) {
    EXPECT_EQ(method_of({.config = bad}).substr(0, 6), "error:") << bad;
  }
}

TEST(QuantisedFolders, TypesOfKeysAndValuesAreThoseOfTheRecipe) {
  const auto types_of = [](const std::string& recipe) {
    const Result<KvTypes> types = own_kv_types(ModelFile(ModelFile::Parts{.quant_recipe_json = recipe}));
    return types ? types->name() : types.error().message;
  };
  const auto compressed = [&](const std::string& scheme) {
    return types_of(R"({"quant_method":"compressed-tensors","kv_cache_scheme":)" + scheme + "}");
  };
  EXPECT_EQ(types_of(""), "F16");
  EXPECT_EQ(types_of(R"({"quant_method":"gptq","bits":4})"), "F16");
  EXPECT_EQ(compressed("null"), "F16");
  EXPECT_EQ(compressed(R"({"num_bits":8,"type":"float","strategy":"tensor","dynamic":false,"symmetric":true})"), "F8");
  EXPECT_EQ(compressed(R"({"num_bits":8,"type":"int","symmetric":true})"), "I8");
  EXPECT_EQ(types_of(R"({"quant_method":"modelopt","quant_algo":"FP8","kv_cache_quant_algo":"FP8"})"), "F8");
  EXPECT_EQ(types_of(R"({"quant_method":"modelopt","quant_algo":"FP8","kv_cache_quant_algo":null})"), "F16");
  // What is not understood is no reason to refuse the folder, unless it is asked for.
  for (const char* scheme : {R"({"num_bits":4,"type":"float"})", R"({"type":"int"})", "[8]", "8", R"("static")"}) {
    EXPECT_NE(compressed(scheme).find("choose one of f32"), std::string::npos) << compressed(scheme);
    const std::string recipe = R"({"quant_method":"compressed-tensors","kv_cache_scheme":)" + std::string(scheme) + "}";
    EXPECT_TRUE(read_quant_recipe(ModelFile(ModelFile::Parts{.quant_recipe_json = recipe})).ok()) << scheme;
  }
}

}  // namespace
}  // namespace ibid
