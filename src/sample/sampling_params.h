// SamplingParams: all parameters of how a request's tokens are chosen. Plain data, validated by validate() before
// admission. Defaults mean "off", so that a default request samples the model's own distribution.
//
// The order of stages is policy (docs/design.md section 5, law 6) and stands in sample/stage_table.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace ibid {

class BreakerSet;  // text/output/breaker_set.h

// Most entries of a list that each draw walks: biases, bans, tokens of all banned sequences.
inline constexpr int32_t kMaxTokenEntries = 1 << 18;
// The most candidates that are reported beside a token.
inline constexpr int32_t kMaxLogprobs = 1 << 12;

struct SamplingParams {
  // Penalties. Counts are over prompt and answer for repetition, over the answer alone for presence and frequency.
  float repetition_penalty = 1.0f;  // [0.001, 100]; logits > 0 are divided by it, others multiplied
  float presence_penalty = 0.0f;    // [-2, 2]
  float frequency_penalty = 0.0f;   // [-2, 2]
  int32_t penalty_last_n = -1;      // how many of the last tokens repetition_penalty reads; -1: all
  int32_t no_repeat_ngram = 0;      // 0: off
  float dry_multiplier = 0.0f;      // 0: off
  float dry_base = 1.75f;
  int32_t dry_allowed_len = 2;
  int32_t dry_last_n = -1;
  std::shared_ptr<const BreakerSet> dry_breakers;  // no repeat is counted across them; may be null

  // Biases and hard masks.
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<TokenId> banned;
  std::vector<std::vector<TokenId>> banned_sequences;  // bad words: the last token is banned after the others
  std::vector<TokenId> allowed;                        // empty: all

  // Temperature. 0 is greedy: the highest processed logit, ties to the lower id.
  float temperature = 1.0f;
  float dynatemp_range = 0.0f;
  float dynatemp_exponent = 1.0f;

  // Truncation.
  int32_t top_k = 0;         // 0: off
  float top_p = 1.0f;        // (0, 1]
  float min_p = 0.0f;        // [0, 1]
  float typical_p = 1.0f;    // (0, 1]
  float top_n_sigma = 0.0f;  // 0: off
  float xtc_probability = 0.0f;
  float xtc_threshold = 0.1f;
  int32_t mirostat = 0;  // 0: off, 1 or 2: that version
  float mirostat_tau = 5.0f;
  float mirostat_eta = 0.1f;

  uint64_t seed = 0;                    // choice i of n uses seed + i
  int32_t logprobs = -1;                // -1: none; 0: the chosen token's; N: and the N best
  bool processed_logprobs = false;      // also those after the processors
  std::vector<TokenId> logprob_tokens;  // with logprobs >= 0: the chosen one and these are reported, not the N best

  int32_t min_tokens = 0;  // no end-of-generation token before this many
  bool ignore_eos = false;
};

// A sentence that names the field at fault; `vocab_size` bounds the ids.
Status validate(const SamplingParams& params, int32_t vocab_size);

}  // namespace ibid
