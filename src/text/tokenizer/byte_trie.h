// ByteTrie: texts -> values, walked byte by byte; children stand in one hash table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace ibid {

class ByteTrie {
 public:
  // Inserting the same text again replaces its value; value >= 0. At most 2^24 nodes; false where they are used up, or
  // made to collide.
  bool insert(std::string_view text, int32_t value);
  // The same for many texts at once, in their order as bytes, which walks no common beginning twice.
  struct Entry {
    std::string_view text;
    int32_t value;
  };
  bool insert_all(std::span<const Entry> entries);

  // Calls f(value, length) for every inserted text that `text` begins with, shortest first.
  template <typename Function>
  void each_prefix(std::string_view text, Function&& f) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (values_[node] >= 0) f(values_[node], i + 1);
    }
  }

 private:
  static constexpr uint32_t kMaxNodes = 1u << 24;
  static constexpr size_t kMaxProbes = 1024;
  struct Slot {
    uint32_t key = 0;    // parent << 8 | byte
    uint32_t child = 0;  // 0: free, as the root is not a child
  };
  static size_t hash(uint32_t key) { return static_cast<size_t>(key * 0x9E3779B97F4A7C15u >> 32); }
  uint32_t child(uint32_t node, unsigned char byte) const {
    if (slots_.empty()) return 0;
    uint32_t key = node << 8 | byte;
    size_t i = hash(key) & mask_;
    for (size_t probes = 0; probes <= longest_; ++probes, i = (i + 1) & mask_) {
      if (slots_[i].child == 0 || slots_[i].key == key) return slots_[i].child;
    }
    return 0;
  }
  void grow(size_t n_slots);
  uint32_t child_made(uint32_t node, unsigned char byte);  // 0 where the nodes are used up, or collide

  std::vector<Slot> slots_;
  std::vector<int32_t> values_ = {-1};  // of each node, or -1
  size_t mask_ = 0;
  size_t longest_ = 0;  // way of a node from its place
};

}  // namespace ibid
