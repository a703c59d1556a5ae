// A tiny random model with an engine around it, for selftest.
#pragma once

#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "model/model.h"
#include "model/testing/tiny_model.h"
#include "tensor/stream.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid::cli {

struct TinyAnswer {
  std::vector<TokenId> tokens;
  Usage usage;
  Timing timing;
  bool failed = false;
};

struct TinyEngine {
  // n_blocks: of 16 tokens; 0: plenty.
  explicit TinyEngine(std::string_view architecture, int32_t n_blocks = 0);

  std::vector<TokenId> tokens(int32_t n, uint32_t salt = 0) const;
  Request request(std::vector<TokenId> prompt, int32_t n_tokens, uint64_t seed) const;
  // One answer per choice, in the order of the requests and of their choices.
  std::vector<TinyAnswer> run(std::vector<Request> requests);
  int32_t blocks_leaked() const;

  std::unique_ptr<ThreadTeam> team;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Model> model;
  std::unique_ptr<Engine> engine;
  int32_t most_shared_blocks = 0;

 private:
  uint64_t next_id_ = 1;
};

}  // namespace ibid::cli
