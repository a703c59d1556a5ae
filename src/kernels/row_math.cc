#include "kernels/row_math.h"

#include "base/check.h"
#include "kernels/cpu/row_table.h"
#include "kernels/cpu/table.h"

namespace ibid {

void row_exp(std::span<float> out, std::span<const float> in) {
  CHECK(out.size() == in.size());
  cpu::table().row->exp(out.data(), in.data(), static_cast<int64_t>(in.size()));
}

void row_log_softmax(std::span<float> out, std::span<const float> logits) {
  CHECK(out.size() == logits.size());
  cpu::table().row->log_softmax(out.data(), logits.data(), static_cast<int64_t>(logits.size()));
}

}  // namespace ibid
