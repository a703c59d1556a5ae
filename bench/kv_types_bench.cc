// What a KV cache's types cost in quality, beside F32: perplexity, the divergence of each token's distribution, the
// share of tokens whose most likely next one stays, and whether a number is repeated that stood in the text long
// before.
//   kv_types_bench MODEL.gguf TEXT [TOKENS [THREADS]]
// Weights should be F16 or F32: products of quantised weights round activations, which hides what a cache of 8 bits
// costs (docs/decisions/0044-bf16-caches-keep-floats.md).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "format/gguf_vocabulary.h"
#include "kernels/kv_layout.h"
#include "model/model.h"
#include "model/perplexity.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid::bench {
namespace {

const KvTypes kTypes[] = {KvType::kF32,
                          KvType::kF16,
                          KvType::kBF16,
                          KvType::kF8,
                          KvType::kI8,
                          {KvType::kI8, KvType::kI4},
                          {KvType::kF16, KvType::kI4},
                          {KvType::kI4, KvType::kF16},
                          KvType::kI4};

struct Text {
  std::vector<TokenId> tokens;
  size_t answer;  // the first of the number's tokens at the end
};

// `n_tokens` of the text with a number in them an eighth from their beginning, which the end asks for.
Text text_of(const Tokenizer& tokenizer, const std::string& path, size_t n_tokens) {
  std::ifstream in(path, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  CHECK(!whole.empty(), "a text that can be read");
  std::vector<TokenId> tokens = tokenizer.encode(whole, {.add_special = true});
  tokens.resize(std::min(tokens.size(), n_tokens));
  const std::vector<TokenId> needle = tokenizer.encode(" The secret number is 7194836. ", {.add_special = false});
  tokens.insert(tokens.begin() + static_cast<ptrdiff_t>(tokens.size() / 8), needle.begin(), needle.end());
  const std::vector<TokenId> question = tokenizer.encode(" The secret number is", {.add_special = false});
  const std::vector<TokenId> answer = tokenizer.encode(" 7194836", {.add_special = false});
  tokens.insert(tokens.end(), question.begin(), question.end());
  Text text = {tokens, tokens.size()};
  text.tokens.insert(text.tokens.end(), answer.begin(), answer.end());
  return text;
}

size_t first_of(const float* row, size_t n) { return static_cast<size_t>(std::max_element(row, row + n) - row); }

}  // namespace
}  // namespace ibid::bench

int main(int argc, char** argv) {
  using namespace ibid;
  using namespace ibid::bench;
  if (argc < 3) {
    std::fprintf(stderr, "usage: kv_types_bench MODEL.gguf TEXT [TOKENS [THREADS]]\n");
    return 2;
  }
  ThreadTeam team(argc > 4 ? std::max(1, std::atoi(argv[4])) : usable_cores());
  Stream stream(team);
  const auto file = std::make_shared<ModelFile>(ModelFile::open(argv[1]).value());
  const auto tokenizer = Tokenizer::from_vocabulary(vocabulary_from_gguf(*file).value()).value();
  const auto model = load_model(file, {.step_tokens = 256, .max_rows = 256}, stream).value();
  const Text text = text_of(*tokenizer, argv[2], static_cast<size_t>(argc > 3 ? std::atoi(argv[3]) : 1000));
  const auto V = static_cast<size_t>(model->config().vocab_size);
  std::printf("%zu tokens\n%-9s %14s %11s %12s %12s %10s %8s\n", text.tokens.size(), "types", "bytes a token",
              "perplexity", "mean KL 1e-3", "99 % KL 1e-3", "same first", "number");
  std::vector<float> base;
  for (const KvTypes& types : kTypes) {
    const bool is_base = types == kTypes[0];
    double sum = 0;
    std::vector<double> each;
    int64_t n_same = 0, n_found = 0;
    const auto score =
        score_text(*model, stream, types, text.tokens, [&](int64_t position, std::span<const float> row) {
          if (is_base) base.insert(base.end(), row.begin(), row.end());
          const float* of_base = base.data() + static_cast<size_t>(position) * V;
          double divergence = 0;
          for (size_t i = 0; i < V; ++i)
            divergence += std::exp(double{of_base[i]}) * (double{of_base[i]} - double{row[i]});
          each.push_back(divergence);
          sum += divergence;
          n_same += first_of(row.data(), V) == first_of(of_base, V);
          const auto next = static_cast<size_t>(position) + 1;
          if (next >= text.answer && next < text.tokens.size())
            n_found += first_of(row.data(), V) == static_cast<size_t>(raw(text.tokens[next]));
        });
    CHECK(score.ok(), "a text of the context's length");
    std::sort(each.begin(), each.end());
    const auto n = static_cast<double>(each.size());
    const int64_t bytes = kv_block_bytes(kv_layouts(model->kv_geometries(), types, 16)) / 16;
    std::printf("%-9s %14lld %11.4f %12.3f %12.3f %8.2f %% %3lld of %zu\n", types.name().c_str(),
                static_cast<long long>(bytes), score->perplexity(), sum / n * 1e3,
                each[static_cast<size_t>(0.99 * (n - 1))] * 1e3, 100.0 * static_cast<double>(n_same) / n,
                static_cast<long long>(n_found), text.tokens.size() - text.answer);
    std::fflush(stdout);
  }
  return 0;
}
