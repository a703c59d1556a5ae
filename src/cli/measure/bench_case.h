// One measurement of `ibid bench`, and how it is taken: through the engine itself, so that what is measured is what
// users get.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "model/adapters.h"

namespace ibid::cli {

struct BenchCase {
  int32_t n_prompt = 0;
  int32_t n_gen = 0;
  int32_t n_streams = 1;
  int32_t depth = 0;
  std::vector<std::shared_ptr<const PlacedAdapter>> adapters;  // that streams have in turn; empty: none
  std::string name() const {
    std::string s = n_gen == 0 ? fmt::format("pp{}", n_prompt) : fmt::format("tg{}", n_gen);
    if (is_both()) s = fmt::format("pp{}+tg{}", n_prompt, n_gen);
    if (n_streams > 1) s += fmt::format(" x{}", n_streams);
    if (depth > 0) s += fmt::format(" @ d{}", depth);
    return s;
  }
  bool is_both() const { return n_prompt > 0 && n_gen > 0; }  // timed together
  int32_t tokens() const { return n_streams * (n_prompt + n_gen); }
  int32_t longest() const { return std::max(depth, 1) + n_prompt + n_gen + 1; }
};

// Seconds from the first to the last token that counts: prefill from submission to the first token, decode from the
// moment when every stream has its first token, both from submission to the last token. `started` is called each time
// that the clock is set to 0: at first, and again when what does not count is over.
Result<double> run_once(
    Engine& engine, const BenchCase& test, int32_t vocab_size, const std::function<void()>& started = [] {});

}  // namespace ibid::cli
