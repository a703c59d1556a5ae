// CodeSet: a set of code points, as ascending disjoint ranges. Surrogates are no code points and in no set.
#pragma once

#include <cstdint>
#include <vector>

namespace ibid::grammar {

inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;

struct CodeRange {
  uint32_t lo = 0, hi = 0;  // both are members
  bool operator==(const CodeRange&) const = default;
};

class CodeSet {
 public:
  CodeSet() = default;
  CodeSet(std::initializer_list<CodeRange> ranges);
  static CodeSet all() { return {{0, kMaxCodePoint}}; }
  void add(uint32_t lo, uint32_t hi);
  void add(const CodeSet& other);
  CodeSet complement() const;
  bool empty() const { return ranges().empty(); }
  const std::vector<CodeRange>& ranges() const;  // normal form

 private:
  mutable std::vector<CodeRange> ranges_;
  mutable bool is_normal_ = true;
};

// Calls f(bytes, n) for pieces that together are the UTF-8 of all code points of [lo, hi]: bytes[i] is the range of
// byte i of n. No overlong form and no surrogate is among them (Unicode 16, table 3-7).
struct ByteRange {
  uint8_t lo = 0, hi = 0;
};
template <typename Function>
void each_utf8_piece(uint32_t lo, uint32_t hi, Function&& f);

// How many pieces that were, for budgets: at most 8 a range.
namespace detail {
int utf8_pieces(uint32_t lo, uint32_t hi, ByteRange (*pieces)[4], int* lens);
inline constexpr int kMaxPieces = 24;
}  // namespace detail

template <typename Function>
void each_utf8_piece(uint32_t lo, uint32_t hi, Function&& f) {
  ByteRange pieces[detail::kMaxPieces][4];
  int lens[detail::kMaxPieces];
  const int n = detail::utf8_pieces(lo, hi, pieces, lens);
  for (int i = 0; i < n; ++i) f(static_cast<const ByteRange*>(pieces[i]), lens[i]);
}

}  // namespace ibid::grammar
