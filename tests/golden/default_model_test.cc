// The default model's numbers on a fixed text; bench/compare_kl.py compares more, also with llama.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/cache_folder.h"
#include "format/gguf_vocabulary.h"
#include "kernels/reference/reference.h"
#include "model/perplexity.h"
#include "model/testing/loaded_model.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid {
namespace {

constexpr std::string_view kText =
    "The harbour lay quiet under the morning fog. An old man mended his nets on the pier and told the children how, "
    "many "
    "years ago, a whale had followed his boat for three days. They did not believe him, but they listened, because he "
    "told it well and because there was nothing else to do before school began. When the bell rang they ran up the "
    "hill, "
    "and he went on mending, one knot after another, until the sun came through.";
// llama.cpp on the dequantised weights rounded to F16, KV in F32.
constexpr size_t kTokens = 94;
constexpr double kMeanNll = 3.59271;

struct Scored {
  TextScore score;
  std::vector<std::vector<float>> rows;
};

TEST(SlowDefaultModelNumbers, AreThoseOfThePeerAndTheKernelsStayNearTheReference) {
  const char* given = std::getenv("IBID_MODEL");
  const std::string path = given != nullptr ? given : cache_folder() + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no model at " << path << "; ./quickstart fetches it";
  Result<ModelFile> opened = ModelFile::open(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const auto file = std::make_shared<const ModelFile>(std::move(opened).value());
  Result<Vocabulary> vocabulary = vocabulary_from_gguf(*file);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  const auto tokenizer = Tokenizer::from_vocabulary(std::move(vocabulary).value());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::vector<TokenId> tokens = (*tokenizer)->encode(kText);
  ASSERT_EQ(tokens.size(), kTokens);
  testing::LoadedModel m(file, {.context_len = 256, .step_tokens = 128, .max_rows = 128}, usable_cores());
  auto score = [&](bool reference) {
    Scored out;
    reference::select(reference);
    out.score = *score_text(*m.model, *m.stream, DType::kF32, tokens, [&out](int64_t, std::span<const float> row) {
      out.rows.emplace_back(row.begin(), row.end());
    });
    reference::select(false);
    return out;
  };
  const Scored exact = score(true), fast = score(false);
  EXPECT_NEAR(exact.score.mean_nll, kMeanNll, 2e-3);
  double kl = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    for (size_t v = 0; v < exact.rows[i].size(); ++v) {
      const double p = exact.rows[i][v];
      kl += std::exp(p) * (p - static_cast<double>(fast.rows[i][v]));
    }
  }
  kl /= static_cast<double>(tokens.size());
  EXPECT_LT(kl, 0.01) << "activations rounded to 8 bits, in blocks of 32";
  EXPECT_GT(kl, 1e-4) << "the reference does not round activations";
}

}  // namespace
}  // namespace ibid
