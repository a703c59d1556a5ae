// What others than ops do to one row of numbers on the CPU (the sampler, whose rows lie in host memory), by the
// selected instruction set; the same bits on every one, and those of the ops.
#pragma once

#include <span>

namespace ibid {

// out[i] = exp(in[i]), the kernels' own exp; out may be in.
void row_exp(std::span<float> out, std::span<const float> in);
// The bits of ops::log_softmax; out may be logits.
void row_log_softmax(std::span<float> out, std::span<const float> logits);

}  // namespace ibid
