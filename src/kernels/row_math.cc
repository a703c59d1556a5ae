#include "kernels/row_math.h"

#include <limits>

#include "base/check.h"
#include "kernels/cpu/row_table.h"
#include "kernels/cpu/table.h"

namespace ibid {
namespace {

const cpu::RowTable& table() { return *cpu::table().row; }

}  // namespace

RowLook row_look(std::span<const float> row) {
  RowLook out;
  table().look(row.data(), static_cast<int64_t>(row.size()), &out.most, &out.n_possible, &out.is_sound);
  return out;
}

void row_exp_below(std::span<float> out, std::span<const float> in, float most) {
  CHECK(out.size() == in.size());
  table().exp_below(out.data(), in.data(), most, static_cast<int64_t>(in.size()));
}

void row_log_softmax(std::span<float> out, std::span<const float> logits) {
  CHECK(out.size() == logits.size());
  table().log_softmax(out.data(), logits.data(), static_cast<int64_t>(logits.size()));
}

void row_block_max(std::span<float> out, std::span<const float> row) {
  CHECK(out.size() == (row.size() + kMaxBlock - 1) / kMaxBlock);
  table().block_max(out.data(), row.data(), static_cast<int64_t>(row.size()));
}

size_t next_block_from(std::span<const float> row, size_t from, float least) {
  CHECK(from % kLookBlock == 0 && from <= row.size());
  return static_cast<size_t>(
      table().block_from(row.data(), static_cast<int64_t>(from), static_cast<int64_t>(row.size()), least));
}

// By floats, whose roundings are less than the margin.
size_t next_block_near(std::span<const uint32_t> words, std::span<const float> weights, size_t from, double bound) {
  CHECK(from % kLookBlock == 0 && from <= weights.size() && words.size() >= weights.size());
  constexpr double kMargin = 1 + 1e-6;
  const double wide = bound * 0x1p24 * kMargin;
  const float b = wide > static_cast<double>(std::numeric_limits<float>::max()) ? std::numeric_limits<float>::infinity()
                                                                                : static_cast<float>(wide);
  return static_cast<size_t>(table().block_near(words.data(), weights.data(), static_cast<int64_t>(from),
                                                static_cast<int64_t>(weights.size()), b));
}

}  // namespace ibid
