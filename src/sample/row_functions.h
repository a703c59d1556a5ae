// What sampling does to a whole row of logits, by the selected instruction set where that pays. The same bits on all.
#pragma once

#include <cstdint>
#include <span>

namespace ibid {

float row_max(std::span<const float> row);  // -inf for an empty row; NaNs are passed over
// Neither NaN nor +infinity is in it; -infinity is a token that cannot be drawn.
bool row_is_sound(std::span<const float> row);
int32_t row_argmax(std::span<const float> row);  // ties to the lower index
// out[i] = exp(in[i]), ops' own exp; out may be in.
void row_exp(std::span<float> out, std::span<const float> in);
// The bits of ops::log_softmax.
void row_log_softmax(std::span<float> out, std::span<const float> logits);

}  // namespace ibid
