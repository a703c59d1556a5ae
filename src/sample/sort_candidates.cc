#include "sample/sort_candidates.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace ibid {
namespace {

constexpr uint32_t kDigitBits = 11, kDigits = 1u << kDigitBits;

// Ascending in the order of goes_before; -0 and 0 are one logit.
uint32_t key_of(const Candidate& c) {
  const auto bits = std::bit_cast<uint32_t>(c.logit + 0.0f);
  return (bits >> 31) != 0 ? bits : ~bits & 0x7fffffffu;
}

// One pass of a radix sort from the lowest digit: stable, so that earlier passes decide among equals.
template <typename Key>
void order_by_digit(std::span<Candidate>& from, std::span<Candidate>& to, uint32_t shift, const Key& key) {
  std::array<uint32_t, kDigits> place = {};
  const auto digit = [&](const Candidate& c) { return (key(c) >> shift) & (kDigits - 1); };
  for (const Candidate& c : from) ++place[digit(c)];
  if (place[digit(from.front())] == from.size()) return;
  uint32_t next = 0;
  for (uint32_t& p : place) next += std::exchange(p, next);
  for (const Candidate& c : from) to[place[digit(c)]++] = c;
  std::swap(from, to);
}

}  // namespace

void sort_candidates(std::span<Candidate> candidates, std::vector<Candidate>& spare) {
  constexpr size_t kFew = 1024;
  if (candidates.size() < kFew) return std::sort(candidates.begin(), candidates.end(), goes_before);
  spare.resize(std::max(spare.size(), candidates.size()));
  std::span<Candidate> from = candidates, to = std::span(spare).first(candidates.size());
  const auto id = [](const Candidate& c) { return static_cast<uint32_t>(c.id); };
  // A support that nothing has cut yet lies in order of ids.
  if (!std::ranges::is_sorted(from, {}, &Candidate::id)) {
    const uint32_t highest = id(std::ranges::max(from, {}, &Candidate::id));
    for (uint32_t shift = 0; shift < 32 && (highest >> shift) != 0; shift += kDigitBits)
      order_by_digit(from, to, shift, id);
  }
  for (uint32_t shift = 0; shift < 32; shift += kDigitBits) order_by_digit(from, to, shift, key_of);
  if (from.data() != candidates.data()) std::ranges::copy(from, candidates.begin());
}

}  // namespace ibid
