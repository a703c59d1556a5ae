// What recurrent layers keep of a sequence besides keys and values: a state, of one size whatever the sequence's
// length, which each token overwrites. A model has a StateGeometry for each of its layers. A StateLayout places them in
// a slot of StateSlots, and names that where states outlive the process. States are F32: sums that go on over a whole
// sequence lose too much in less.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ibid {

struct StateGeometry {
  // F32 values, in an order that is the layer's own: the last inputs of a short convolution, a matrix for each head.
  int64_t n_values = 0;  // 0: it keeps none
};

class StateLayout {
 public:
  StateLayout() = default;
  explicit StateLayout(std::span<const StateGeometry> layers);

  // Of a slot: all layers. 0: no layer keeps a state.
  int64_t slot_bytes() const { return slot_bytes_; }
  // A layer's part: its first byte, a multiple of 64, and its values.
  int64_t begin(int layer) const { return begin_[static_cast<size_t>(layer)]; }
  int64_t n_values(int layer) const { return n_values_[static_cast<size_t>(layer)]; }
  // Identifies the bytes of a slot: "F32 4096,0,4096", by layers; empty where none keeps a state.
  std::string name() const;

 private:
  std::vector<int64_t> begin_, n_values_;  // [L]
  int64_t slot_bytes_ = 0;
};

}  // namespace ibid
