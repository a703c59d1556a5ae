#include "text/tokenizer/byte_trie.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace ibid {
namespace {

using Head = std::pair<uint64_t, uint32_t>;  // the first eight bytes of a text as a number, and its place

// Radix sort from the lowest digit up: a comparison sort would be half of the time that a large vocabulary takes.
void sort_by_head(std::vector<Head>& heads) {
  constexpr int kDigitBits = 11, kDigits = 6;
  constexpr uint64_t kMask = (1u << kDigitBits) - 1;
  std::vector<Head> other(heads.size());
  for (int digit = 0; digit < kDigits; ++digit) {
    auto of = [digit](const Head& h) { return static_cast<size_t>(h.first >> (digit * kDigitBits) & kMask); };
    std::array<uint32_t, kMask + 2> begin{};
    for (const Head& h : heads) ++begin[of(h) + 1];
    for (size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
    for (const Head& h : heads) other[begin[of(h)]++] = h;
    heads.swap(other);
  }
}

}  // namespace

void ByteTrie::grow(size_t n_slots) {
  std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(n_slots));
  mask_ = n_slots - 1;
  longest_ = 0;
  for (const Slot& slot : old) {
    if (slot.child == 0) continue;
    size_t i = hash(slot.key) & mask_, probes = 0;
    for (; slots_[i].child != 0; i = (i + 1) & mask_) ++probes;
    longest_ = std::max(longest_, probes);
    slots_[i] = slot;
  }
}

uint32_t ByteTrie::child_made(uint32_t node, unsigned char byte) {
  if (values_.size() * 2 >= slots_.size()) grow(std::max<size_t>(256, slots_.size() * 2));
  uint32_t key = node << 8 | byte;
  size_t i = hash(key) & mask_, probes = 0;
  for (; slots_[i].child != 0; ++probes, i = (i + 1) & mask_) {
    if (slots_[i].key == key) return slots_[i].child;
  }
  longest_ = std::max(longest_, probes);
  if (values_.size() == kMaxNodes || longest_ > kMaxProbes) return 0;
  slots_[i] = {key, static_cast<uint32_t>(values_.size())};
  values_.push_back(-1);
  return slots_[i].child;
}

bool ByteTrie::insert(std::string_view text, int32_t value) {
  uint32_t node = 0;
  for (char c : text) {
    node = child_made(node, static_cast<unsigned char>(c));
    if (node == 0) return false;
  }
  values_[node] = value;
  return true;
}

bool ByteTrie::insert_all(std::span<const Entry> entries) {
  std::vector<Head> order;
  order.reserve(entries.size());
  for (size_t k = 0; k < entries.size(); ++k) {
    uint64_t head = 0;
    for (size_t i = 0; i < 8; ++i) {
      head = head << 8 | (i < entries[k].text.size() ? static_cast<unsigned char>(entries[k].text[i]) : 0);
    }
    order.emplace_back(head, static_cast<uint32_t>(k));
  }
  sort_by_head(order);
  // Texts that begin with the same eight bytes are few; their rest is compared.
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && order[end].first == order[begin].first) ++end;
    if (end - begin < 2) continue;
    std::sort(order.begin() + static_cast<std::ptrdiff_t>(begin), order.begin() + static_cast<std::ptrdiff_t>(end),
              [&](const auto& x, const auto& y) {
                int texts = entries[x.second].text.compare(entries[y.second].text);
                return texts != 0 ? texts < 0 : x.second < y.second;
              });
  }
  constexpr size_t kAhead = 16;
  auto text_at = [&](size_t k) { return entries[order[k].second].text; };
  std::vector<uint32_t> shared(order.size());  // bytes in common with the text before
  size_t n_nodes = values_.size();
  for (size_t k = 0; k < order.size(); ++k) {
    if (k + kAhead < order.size()) __builtin_prefetch(text_at(k + kAhead).data());
    std::string_view text = text_at(k), before = k > 0 ? text_at(k - 1) : std::string_view();
    auto end = std::mismatch(text.begin(), text.end(), before.begin(), before.end()).first;
    shared[k] = static_cast<uint32_t>(end - text.begin());
    n_nodes += text.size() - shared[k];
  }
  size_t n_slots = std::bit_ceil(std::max<size_t>(256, std::min<size_t>(n_nodes, kMaxNodes) * 2 + 2));
  if (n_slots > slots_.size()) grow(n_slots);
  values_.reserve(std::min<size_t>(n_nodes, kMaxNodes));

  std::vector<uint32_t> path = {0};  // the nodes of the text before
  for (size_t k = 0; k < order.size(); ++k) {
    if (k + kAhead < order.size()) __builtin_prefetch(text_at(k + kAhead).data());
    path.resize(shared[k] + 1);
    for (char c : text_at(k).substr(shared[k])) {
      uint32_t node = child_made(path.back(), static_cast<unsigned char>(c));
      if (node == 0) return false;
      path.push_back(node);
    }
    values_[path.back()] = entries[order[k].second].value;
  }
  return true;
}

}  // namespace ibid
