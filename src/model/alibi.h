// Slopes of attention with linear biases (Press et al. 2022): a head's scores fall by its slope for each position
// between key and query (ops::AttentionParams).
#pragma once

#include <cstdint>
#include <vector>

namespace ibid {

// Of H heads, the first one's first. With P the highest power of two up to H: 2^(-bias_max i / P) for i = 1 ... P; of
// the heads after those 2^(-bias_max i / 2P) for i = 1, 3, 5 ... The same bits on every machine (kernels/math.h).
std::vector<float> alibi_slopes(int64_t n_heads, float bias_max);

}  // namespace ibid
