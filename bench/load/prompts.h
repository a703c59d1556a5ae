// Prompts for a load: English of a given length, each another one, all of them the same for a seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace ibid::load {

struct PromptOptions {
  std::string file;        // words are taken from this text, each prompt from another place; empty: generated
  int n_words = 200;       // of each prompt's own
  int n_shared_words = 0;  // before them, the same for all
  uint64_t seed = 1;
  uint64_t run = 0;  // another run has the same shared words and others of its own
};

Result<std::vector<std::string>> make_prompts(const PromptOptions& options, size_t n);

}  // namespace ibid::load
