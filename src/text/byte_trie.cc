#include "text/byte_trie.h"

#include <algorithm>
#include <utility>

namespace ibid {

void ByteTrie::grow() {
  std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(std::max<size_t>(256, slots_.size() * 2)));
  mask_ = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.child == 0) continue;
    size_t i = hash(slot.key) & mask_;
    while (slots_[i].child != 0) i = (i + 1) & mask_;
    slots_[i] = slot;
  }
}

bool ByteTrie::insert(std::string_view text, int32_t value) {
  uint32_t node = 0;
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    uint32_t next = child(node, byte);
    if (next == 0) {
      if (values_.size() == kMaxNodes) return false;
      if (values_.size() * 2 >= slots_.size()) grow();
      next = static_cast<uint32_t>(values_.size());
      values_.push_back(-1);
      uint32_t key = node << 8 | byte;
      size_t i = hash(key) & mask_;
      while (slots_[i].child != 0) i = (i + 1) & mask_;
      slots_[i] = {key, next};
    }
    node = next;
  }
  values_[node] = value;
  return true;
}

}  // namespace ibid
