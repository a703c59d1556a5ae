// What sampling asks of a whole row of logits; exp and log-softmax of a row are in kernels/row_math.h.
#pragma once

#include <cstdint>
#include <span>

namespace ibid {

float row_max(std::span<const float> row);  // -inf for an empty row; NaNs are passed over
// Neither NaN nor +infinity is in it; -infinity is a token that cannot be drawn.
bool row_is_sound(std::span<const float> row);
int32_t row_argmax(std::span<const float> row);  // ties to the lower index

}  // namespace ibid
