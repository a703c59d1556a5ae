#include "kernels/state_layout.h"

namespace ibid {

StateLayout::StateLayout(std::span<const StateGeometry> layers) {
  constexpr int64_t kAlignment = 64;
  for (const StateGeometry& layer : layers) {
    begin_.push_back(slot_bytes_);
    n_values_.push_back(layer.n_values);
    const int64_t bytes = layer.n_values * static_cast<int64_t>(sizeof(float));
    slot_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
}

std::string StateLayout::name() const {
  std::string out;
  if (slot_bytes_ == 0) return out;
  for (const int64_t n : n_values_) out += (out.empty() ? "F32 " : ",") + std::to_string(n);
  return out;
}

}  // namespace ibid
