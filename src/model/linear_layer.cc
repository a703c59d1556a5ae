#include "model/linear_layer.h"

#include <array>

#include "kernels/ops.h"
#include "model/adapters.h"

namespace ibid {

void linear(Stream& s, const StepRows& rows, std::span<const TensorView> out, const TensorView& x,
            std::span<const Linear* const> linears) {
  CHECK(out.size() == linears.size() && linears.size() <= kMaxLinears, "one output for each product, at most eight");
  std::array<const Weight*, kMaxLinears> weights;
  for (size_t j = 0; j < linears.size(); ++j) {
    CHECK(linears[j]->slice.n_ranks == 1, "a part of a product: nothing adds the ranks' sums yet");
    weights[j] = &linears[j]->weight;
  }
  ops::linear(s, out, x, {weights.data(), linears.size()});
  for (size_t j = 0; j < linears.size(); ++j) {
    const Linear& l = *linears[j];
    if (l.bias.rank != 0) ops::add_bias(s, out[j], l.bias);
  }
  if (rows.adapters != nullptr) rows.adapters->add(s, rows, out, x, linears);
  for (size_t j = 0; j < linears.size(); ++j) {
    const Linear& l = *linears[j];
    if (l.scale != 1) ops::scale(s, out[j], l.scale);
  }
}

}  // namespace ibid
