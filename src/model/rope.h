// The frequencies of rotary position embeddings, computed once at load in double precision by our own functions.
//
// A pair i of a head turns by position * frequency[i], frequency[i] = base^(-2 i / (2 n_pairs)) before scaling (Su et
// al., RoFormer, section 3.4.2). Scalings, each a function of the configuration alone:
//   (pairs from n_turning on stand still, whatever the scaling: their frequency is 0)
//   linear    frequency / factor (Chen et al., position interpolation)
//   llama3    wavelengths longer than original / low_freq_factor are divided by factor, those shorter than original /
//             high_freq_factor stay, between them a linear blend in original / wavelength
//   yarn      frequency and frequency / factor blended by a ramp between the pairs that turn beta_fast and beta_slow
//             times in the original context; magnitude 0.1 ln(factor) + 1 (Peng et al., YaRN, sections 3.2 to 3.4)
//   longrope  frequency / short_factors or / long_factors; magnitude sqrt(1 + ln(factor) / ln(original)) (Ding et al.)
// longrope's choice depends on the context that the engine was configured with, never on a text's length
// (docs/design.md section 5, law 2): the long factors iff context_len > original_context.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"
#include "model/config.h"

namespace ibid {

struct RopeTable {
  std::vector<double> frequency;  // [n_pairs]
  std::vector<uint8_t> axes;      // [n_pairs], or empty
  float magnitude = 1.0f;
  bool interleaved = false;
  bool long_factors = false;  // longrope's choice

  ops::Rope op() const {
    return {.interleaved = interleaved,
            .n_pairs = static_cast<int>(frequency.size()),
            .magnitude = magnitude,
            .frequency = frequency.data(),
            .axes = axes.empty() ? nullptr : axes.data()};
  }
};

// `config` has passed validate(). context_len: tokens, at least 1.
RopeTable make_rope_table(const RopeConfig& config, int64_t context_len);

}  // namespace ibid
