// The data about one token, from the sampler to the client.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace ibid {

struct TokenLogprob {
  TokenId token = TokenId::kNone;
  float raw = 0;        // log-probability by the model, before any processor
  float processed = 0;  // after the processors; -inf where masked
};

// One generated (or prompt) token with the data that the request asks for.
struct TokenRecord {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // the requested number by raw, or the named tokens and the chosen one;
                                  // best first, ties to the lower id
  int32_t support = 0;            // tokens that could have been drawn
  int32_t position = 0;           // absolute position of the token in its sequence; with the seed, the draw's counter
};

}  // namespace ibid
