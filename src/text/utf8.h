// UTF-8, read as Python reads it: every maximal invalid prefix is one U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ibid::utf8 {

inline constexpr char32_t kReplacement = 0xFFFD;

struct CodePoint {
  char32_t value;  // U+FFFD where the bytes are invalid
  uint32_t len;    // bytes read, 1 to 4
  bool valid;
};

// Reads the code point at p; p < end. An invalid sequence has the length of its longest prefix that could have begun a
// code point, at least 1 (Unicode 16, section 3.9, "substitution of maximal subparts").
CodePoint decode_multibyte(const char* p, const char* end);
inline CodePoint decode(const char* p, const char* end) {
  unsigned char c = static_cast<unsigned char>(*p);
  if (c < 0x80) return {c, 1, true};
  return decode_multibyte(p, end);
}

// For bytes known to be valid UTF-8 with a whole code point at p.
inline char32_t decode_valid(const char* p, uint32_t& len) {
  auto byte = [p](int i) { return static_cast<unsigned char>(p[i]); };
  unsigned char c = byte(0);
  if (c < 0x80) return len = 1, c;
  if (c < 0xE0) return len = 2, (c & 0x1Fu) << 6 | (byte(1) & 0x3Fu);
  if (c < 0xF0) return len = 3, (c & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
  return len = 4, (c & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu);
}

// Length of a code point by its first byte, for valid UTF-8.
inline uint32_t len_of(char first) {
  unsigned char c = static_cast<unsigned char>(first);
  return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

void append(char32_t code_point, std::string& out);  // surrogates and values past U+10FFFF become U+FFFD
bool is_valid(std::string_view bytes);
inline bool is_one(std::string_view bytes) {  // one whole code point and nothing else
  if (bytes.empty()) return false;
  CodePoint c = decode(bytes.data(), bytes.data() + bytes.size());
  return c.valid && c.len == bytes.size();
}
// `bytes` itself where valid, else a copy in `storage` with U+FFFD for every invalid sequence.
std::string_view replace_invalid(std::string_view bytes, std::string& storage);

}  // namespace ibid::utf8
