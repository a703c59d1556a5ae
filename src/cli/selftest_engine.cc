#include "cli/selftest_engine.h"

#include <algorithm>

#include "engine/memory_plan.h"
#include "model/tokenizer_of_model.h"

namespace ibid::cli {

TinyEngine::TinyEngine(std::string_view architecture, int32_t n_blocks)
    : team(std::make_unique<ThreadTeam>(1)), stream(std::make_unique<Stream>(*team)) {
  auto file = testing::tiny_model_file({.architecture = architecture, .vocab_size = 300, .tokenizer = true});
  // A pool must hold one whole context, so a small pool means a short one.
  int64_t context = n_blocks > 0 ? (n_blocks - 2) * 16 : 512;
  auto loaded =
      load_model(file, {.context_len = context, .step_tokens = 128, .max_rows = 128, .max_sequences = 16}, *stream);
  CHECK(loaded.ok(), loaded.ok() ? "" : loaded.error().message.c_str());
  model = std::move(loaded).value();
  auto tokenizer = load_tokenizer(*file);
  CHECK(tokenizer.ok(), tokenizer.ok() ? "" : tokenizer.error().message.c_str());
  EngineOptions options{.step_tokens = 64, .max_sequences = 16};
  options.kv_bytes = kv_bytes_of_block(*model, options.kv_dtype, options.block_len) * (n_blocks > 0 ? n_blocks : 256);
  auto made = Engine::create(*model, *tokenizer, *stream, options);
  CHECK(made.ok(), made.ok() ? "" : made.error().message.c_str());
  engine = std::move(made).value();
}

std::vector<TokenId> TinyEngine::tokens(int32_t n, uint32_t salt) const {
  std::vector<TokenId> out;
  uint32_t x = 99 + salt * 7919;
  for (int32_t i = 0; i < n; ++i) {
    x = x * 1664525u + 1013904223u;
    out.push_back(TokenId{static_cast<int32_t>((x >> 9) % 256u)});
  }
  return out;
}

Request TinyEngine::request(std::vector<TokenId> prompt, int32_t n_tokens, uint64_t seed) const {
  Request r;
  r.prompt = std::move(prompt);
  r.sampling.seed = seed;
  r.sampling.ignore_eos = true;
  r.max_tokens = n_tokens;
  return r;
}

std::vector<TinyAnswer> TinyEngine::run(std::vector<Request> requests) {
  std::map<std::pair<uint64_t, int32_t>, TinyAnswer> answers;
  size_t n_wanted = 0, n_finished = 0;
  for (Request& r : requests) {
    r.id = RequestId{next_id_++};
    for (int32_t c = 0; c < r.n; ++c) answers[{static_cast<uint64_t>(r.id), c}] = {}, ++n_wanted;
    if (!engine->submit(std::move(r)).ok()) return std::vector<TinyAnswer>(n_wanted);
  }
  std::vector<Output> outputs;
  while (n_finished < n_wanted) {
    outputs.clear();
    if (!engine->step(outputs)) break;
    most_shared_blocks = std::max(most_shared_blocks, engine->stats().blocks_shared);
    for (const Output& o : outputs) {
      TinyAnswer& a = answers[{static_cast<uint64_t>(o.request), o.choice}];
      for (const TokenRecord& t : o.tokens) a.tokens.push_back(t.chosen.token);
      a.usage = o.usage;
      a.timing = o.timing;
      a.failed = o.reason == FinishReason::kError;
      n_finished += o.finished;
    }
  }
  std::vector<TinyAnswer> out;
  for (auto& [key, answer] : answers) out.push_back(std::move(answer));
  return out;
}

int32_t TinyEngine::blocks_leaked() const {
  EngineStats s = engine->stats();
  return s.blocks_in_use + (s.blocks_total - s.blocks_free - s.blocks_cached - s.blocks_in_use);
}

}  // namespace ibid::cli
