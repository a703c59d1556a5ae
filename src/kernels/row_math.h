// What others than ops do to one row of numbers on the CPU (the sampler, whose rows lie in host memory), by the
// selected instruction set; the same bits on every one, and those of the ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ibid {

struct RowLook {
  float most = 0;          // -inf for an empty row; NaNs are passed over
  int64_t n_possible = 0;  // above -inf, which is a token that cannot be drawn
  bool is_sound = true;    // neither NaN nor +infinity is in it
};
RowLook row_look(std::span<const float> row);

// out[i] = exp(in[i] - most), the kernels' own exp; most is in's highest. out may be in.
void row_exp_below(std::span<float> out, std::span<const float> in, float most);
// The bits of ops::log_softmax; out may be logits.
void row_log_softmax(std::span<float> out, std::span<const float> logits);

// The highest of each block of so many, the last of which may be shorter.
inline constexpr size_t kMaxBlock = 32;
void row_block_max(std::span<float> out, std::span<const float> row);

// Where a look at 64 numbers at once finds anything: the first i >= from, both multiples of 64, so that one of the 64
// from i on may be wanted; where the row has no 64 more, that place. Who calls looks at each of the 64 then.
inline constexpr size_t kLookBlock = 64;
// Wanted: row[i] >= least, a finite number; the row is sound.
size_t next_block_from(std::span<const float> row, size_t from, float least);
// Wanted: (words[i] + 1/2) 2^-32 <= bound * weights[i], for weights in [0, 1] and bound > 0, infinity too; none of
// weight 0 then. Some more may be found.
size_t next_block_near(std::span<const uint32_t> words, std::span<const float> weights, size_t from, double bound);

}  // namespace ibid
