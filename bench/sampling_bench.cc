// The cost of a draw from a row of V logits, by sampler: medians of one thread's time.
//   sampling_bench [V ...]
// Rows are normal noise with thirty likely tokens, shaped as a small model's are. The number after a time is a digest
// of the drawn tokens: it must not change.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "sample/sampler.h"

namespace ibid::bench {
namespace {

struct Case {
  const char* name;
  SamplingParams params;
};

std::vector<Case> cases() {
  return {
      {"T 0", {.temperature = 0}},
      {"T 1", {.temperature = 1}},
      {"T 0.8", {.temperature = 0.8F}},
      {"T 0.8, top_k 40", {.temperature = 0.8F, .top_k = 40}},
      {"T 0.8, top_p 0.95", {.temperature = 0.8F, .top_p = 0.95F}},
      {"T 0.8, min_p 0.05", {.temperature = 0.8F, .min_p = 0.05F}},
      {"T 0.8, all three", {.temperature = 0.8F, .top_k = 40, .top_p = 0.95F, .min_p = 0.05F}},
      {"T 0.8, typical 0.9", {.temperature = 0.8F, .typical_p = 0.9F}},
      {"T 0.8, mirostat 2", {.temperature = 0.8F, .mirostat = 2}},
      {"T 0.8, repetition", {.repetition_penalty = 1.1F, .temperature = 0.8F}},
      {"T 0.8, 5 log-probs", {.temperature = 0.8F, .logprobs = 5}},
  };
}

std::vector<float> row_of(std::mt19937& random, size_t n) {
  std::normal_distribution<float> noise;
  std::vector<float> row(n);
  for (float& x : row) x = 2.2F * noise(random) - 4;
  for (int i = 0; i < 30; ++i) row[random() % n] = 14 - 0.35F * static_cast<float>(i) + noise(random);
  return row;
}

void measure(int32_t vocab_size) {
  constexpr int32_t kDraws = 301, kRows = 8;
  std::mt19937 random(1);
  std::vector<std::vector<float>> rows;
  for (int32_t i = 0; i < kRows; ++i) rows.push_back(row_of(random, static_cast<size_t>(vocab_size)));
  std::printf("\n| V %d | us | drawn |\n|---|--:|---|\n", vocab_size);
  for (const Case& c : cases()) {
    const auto sampler = Sampler::compile(c.params, vocab_size, {}, 1).value();
    SamplerScratch scratch;
    SamplerState state = sampler->initial_state();
    std::vector<TokenId> text(200, TokenId{5});
    std::vector<double> seconds;
    uint32_t digest = 0;
    for (int32_t i = 0; i < kDraws; ++i) {
      const double begin = steady_clock().now();
      const TokenRecord drawn =
          sampler->sample(rows[static_cast<size_t>(i % kRows)], {text, {}}, state, scratch).value();
      seconds.push_back(steady_clock().now() - begin);
      text.push_back(drawn.chosen.token);
      digest = digest * 31 + static_cast<uint32_t>(raw(drawn.chosen.token)) + static_cast<uint32_t>(drawn.support);
    }
    std::ranges::nth_element(seconds, seconds.begin() + kDraws / 2);
    std::printf("| %s | %.1f | %08x |\n", c.name, 1e6 * seconds[kDraws / 2], digest);
  }
}

}  // namespace
}  // namespace ibid::bench

int main(int argc, char** argv) {
  std::vector<int32_t> sizes;
  for (int i = 1; i < argc; ++i) {
    int32_t n = 0;
    const char* end = argv[i] + std::strlen(argv[i]);
    CHECK(std::from_chars(argv[i], end, n).ptr == end && n > 0, "each argument is a number of tokens");
    sizes.push_back(n);
  }
  if (sizes.empty()) sizes = {49152, 151936};
  for (const int32_t n : sizes) ibid::bench::measure(n);
}
