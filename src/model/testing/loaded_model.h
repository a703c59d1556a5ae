// A model with the stream it runs on, and shorthands for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <vector>

#include "model/model.h"
#include "model/one_sequence.h"
#include "model/testing/tiny_model.h"

namespace ibid::testing {

struct LoadedModel {
  explicit LoadedModel(std::shared_ptr<const ModelFile> file,
                       ModelOptions options = {.step_tokens = 128, .max_rows = 128}, int n_threads = 1)
      : team(std::make_unique<ThreadTeam>(n_threads)), stream(std::make_unique<Stream>(*team)) {
    Result<std::unique_ptr<Model>> loaded = load_model(std::move(file), options, *stream);
    EXPECT_TRUE(loaded.ok()) << (loaded ? "" : loaded.error().message);
    if (loaded) model = std::move(loaded).value();
  }
  explicit LoadedModel(const TinyModelOptions& options) : LoadedModel(tiny_model_file(options)) {}

  // The logits of every token, computed in steps of at most max_step.
  std::vector<float> logits(std::span<const TokenId> tokens, OneSequenceOptions options = {}, int64_t max_step = 0) {
    OneSequence sequence(*model, *stream, options);
    std::vector<float> out;
    sequence.append(
        tokens,
        [&out](int64_t, const TensorView& rows) {
          const float* begin = rows.row_as<const float>(0);
          out.insert(out.end(), begin, begin + rows.n_elements());
        },
        max_step);
    return out;
  }

  std::unique_ptr<ThreadTeam> team;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Model> model;
};

// n ids below vocab_size, the same for the same seed.
inline std::vector<TokenId> some_tokens(int64_t n, int64_t vocab_size, uint64_t seed = 1) {
  std::vector<TokenId> ids;
  uint64_t state = seed * 6364136223846793005u + 1442695040888963407u;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(TokenId{static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab_size))});
  }
  return ids;
}

}  // namespace ibid::testing
