#include "sample/grammar/code_set.h"

#include <algorithm>

#include "base/check.h"

namespace ibid::grammar {

CodeSet::CodeSet(std::initializer_list<CodeRange> ranges) : ranges_(ranges), is_normal_(false) {}

void CodeSet::add(uint32_t lo, uint32_t hi) {
  if (lo > hi) return;
  ranges_.push_back({lo, std::min(hi, kMaxCodePoint)});
  is_normal_ = false;
}

void CodeSet::add(const CodeSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  is_normal_ = false;
}

const std::vector<CodeRange>& CodeSet::ranges() const {
  if (is_normal_) return ranges_;
  std::sort(ranges_.begin(), ranges_.end(), [](CodeRange a, CodeRange b) { return a.lo < b.lo; });
  std::vector<CodeRange> normal;
  auto append = [&](uint32_t lo, uint32_t hi) {
    if (lo > hi) return;
    if (!normal.empty() && lo <= normal.back().hi + 1) {
      normal.back().hi = std::max(normal.back().hi, hi);
    } else {
      normal.push_back({lo, hi});
    }
  };
  std::vector<CodeRange> whole;
  whole.swap(ranges_);
  for (CodeRange r : whole) {
    if (r.lo < 0xD800) append(r.lo, std::min(r.hi, 0xD7FFu));
    if (r.hi > 0xDFFF) append(std::max(r.lo, 0xE000u), r.hi);
  }
  ranges_ = std::move(normal);
  is_normal_ = true;
  return ranges_;
}

CodeSet CodeSet::complement() const {
  CodeSet rest;
  uint32_t next = 0;
  for (CodeRange r : ranges()) {
    if (r.lo > next) rest.add(next, r.lo - 1);
    next = r.hi + 1;
  }
  if (next <= kMaxCodePoint) rest.add(next, kMaxCodePoint);
  return rest;
}

namespace detail {
namespace {

void spell(uint32_t c, int n, uint8_t* out) {
  static constexpr uint8_t kFirst[] = {0, 0x00, 0xC0, 0xE0, 0xF0};
  for (int i = n - 1; i > 0; --i, c >>= 6) out[i] = static_cast<uint8_t>(0x80 | (c & 0x3F));
  out[0] = static_cast<uint8_t>(kFirst[n] | c);
}

struct Pieces {
  ByteRange (*pieces)[4];
  int* lens;
  int n = 0;

  // [lo, hi] are spelled by as many bytes: cut where a byte but the first would not run through all of 80..BF.
  void split(uint32_t lo, uint32_t hi, int len) {
    for (int i = 1; i < len; ++i) {
      const uint32_t low = (1u << (6 * i)) - 1;
      if ((lo & ~low) != (hi & ~low)) {
        if ((lo & low) != 0) return split(lo, lo | low, len), split((lo | low) + 1, hi, len);
        if ((hi & low) != low) return split(lo, (hi & ~low) - 1, len), split(hi & ~low, hi, len);
      }
    }
    CHECK(n < kMaxPieces);
    uint8_t a[4], b[4];
    spell(lo, len, a), spell(hi, len, b);
    for (int i = 0; i < len; ++i) pieces[n][i] = {a[i], b[i]};
    lens[n++] = len;
  }
};

}  // namespace

int utf8_pieces(uint32_t lo, uint32_t hi, ByteRange (*pieces)[4], int* lens) {
  static constexpr CodeRange kWidths[] = {
      {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, kMaxCodePoint}};
  static constexpr int kLens[] = {1, 2, 3, 3, 4};
  Pieces all{pieces, lens};
  for (int i = 0; i < 5; ++i) {
    const uint32_t from = std::max(lo, kWidths[i].lo), to = std::min(hi, kWidths[i].hi);
    if (from <= to) all.split(from, to, kLens[i]);
  }
  return all.n;
}

}  // namespace detail
}  // namespace ibid::grammar
