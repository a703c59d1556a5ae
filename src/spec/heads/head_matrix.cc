#include "spec/heads/head_matrix.h"

#include "base/quoted.h"
#include "kernels/weight.h"

namespace ibid {

constexpr int64_t kLongestSum = 65536;  // maximum inner dimension, as for models

bool is_float(const TensorInfo& t) {
  const DType dtype = t.view.dtype;
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

Status HeadMatrix::check_shape(const Stream& stream, const std::string& where, int64_t n_outputs,
                               int64_t n_inputs) const {
  const TensorView& w = weight->view;
  const std::string name = where + "tensor " + in_quotes(weight->name);
  const bool has_good_bias =
      bias == nullptr || (bias->view.rank == 1 && bias->view.dim[0] == n_outputs && is_float(*bias));
  if (w.rank != 2 || w.dim[0] != n_outputs || w.dim[1] != n_inputs || !has_good_bias) {
    return invalid(name + " or its bias is not of " + std::to_string(n_outputs) + " x " + std::to_string(n_inputs),
                   weight->name);
  }
  if (!is_weight_type(w.dtype)) {
    return unsupported(name + " is of type " + std::string(traits(w.dtype).name) + ", which a weight cannot be",
                       weight->name);
  }
  if (n_inputs > kLongestSum) return unsupported(where + in_quotes(weight->name) + " is too wide", weight->name);
  return weight_supported(stream, w.dtype);
}

Status HeadMatrix::check_bias(const std::string& where) const {
  if (weight != nullptr || bias == nullptr) return {};
  return invalid(where + "tensor " + in_quotes(bias->name) + " is a bias of nothing", bias->name);
}

}  // namespace ibid
