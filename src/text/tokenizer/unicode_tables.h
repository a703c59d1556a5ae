// The generated tables of text/tokenizer/unicode.h (see tools/make_unicode_tables.py for what each bit is).
#pragma once

#include <cstddef>
#include <cstdint>

namespace ibid::unicode {

extern const uint16_t kStage1[];   // block of a code point's 256
extern const uint8_t kStage2[];    // record of a code point in its block
extern const uint32_t kRecords[];  // category, traits and combining class

// Mappings: pairs (code point, offset into the pool << 8 | length), ascending by code point.
extern const uint32_t kLowerKeys[], kLowerPool[];
extern const uint32_t kNfdKeys[], kNfdPool[];    // full canonical decompositions, Hangul excepted
extern const uint32_t kNfkdKeys[], kNfkdPool[];  // full compatibility decompositions where they differ
extern const size_t kLowerCount, kNfdCount, kNfkdCount;
extern const uint32_t kCompositions[];  // triples (first, second, composed), ascending
extern const size_t kCompositionCount;

}  // namespace ibid::unicode
