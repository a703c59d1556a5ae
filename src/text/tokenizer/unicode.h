// The properties of a code point that tokenizers use. Tables follow the reference (Python `tokenizers`), part by part;
// the generated file names the versions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/tokenizer/unicode_tables.h"

namespace ibid::unicode {

enum Category : uint8_t {
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCo,
  kCn
};

enum Trait : uint32_t {
  kNumeric = 1u << 5,         // the Digits pre-tokenizer's idea of a digit
  kPunctuation = 1u << 6,     // ASCII punctuation and category P, as BERT has it
  kStrippedAccent = 1u << 7,  // dropped by the StripAccents normalizer
  kWord = 1u << 8,            // \w
  kBertDropped = 1u << 9,     // dropped by BERT's text cleaning
  kBertSpace = 1u << 10,      // becomes a space in BERT's text cleaning
  kHan = 1u << 11,
  kHasLower = 1u << 12,
  kDecomposes = 1u << 13,
  kCompatDecomposes = 1u << 14,
  kMayCompose = 1u << 15,  // NFC may change it, or what stands before it
  kSpace = 1u << 16,       // Rust's char::is_whitespace
  kBertAccent = 1u << 17,  // dropped by BERT's accent stripping
};

// Category in bits 0-4, traits, combining class in bits 24-31. Code points past U+10FFFF have the record of U+10FFFF.
inline uint32_t record(char32_t c) {
  if (c > 0x10FFFF) c = 0x10FFFF;
  return kRecords[kStage2[(static_cast<size_t>(kStage1[c >> 8]) << 8) | (c & 0xFF)]];
}
inline Category category(char32_t c) { return static_cast<Category>(record(c) & 31); }
inline bool has(char32_t c, uint32_t traits) { return (record(c) & traits) != 0; }
inline int combining_class(char32_t c) { return static_cast<int>(record(c) >> 24); }

enum class Form { kNfc, kNfd, kNfkc, kNfkd };
// Appends `text` (valid UTF-8) in a normal form (UAX 15). O(n log n) in the longest run of combining marks.
void append_normalized(std::string_view text, Form form, std::string& out);
void append_lower(std::string_view text, std::string& out);  // code point by code point, no final-sigma rule

}  // namespace ibid::unicode
