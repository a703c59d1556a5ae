// UTF-8, read as Python reads it: every maximal invalid prefix is one U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ibid::utf8 {

inline constexpr char32_t kReplacement = 0xFFFD;
inline constexpr std::string_view kReplacementBytes = "\xEF\xBF\xBD";

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

// Length of a code point by its first byte, for valid UTF-8.
inline uint32_t len_of(char first) {
  unsigned char c = static_cast<unsigned char>(first);
  return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

void append(char32_t code_point, std::string& out);  // surrogates and values past U+10FFFF become U+FFFD
bool is_valid(std::string_view bytes);
size_t valid_prefix(std::string_view bytes);  // bytes before the first invalid sequence
// True of 1 to 3 bytes that more bytes could make a code point.
bool is_unfinished(std::string_view bytes);
// True of the bytes of a code point after its first: a text may be cut before every other byte.
inline bool goes_on(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }
inline size_t count(std::string_view bytes) {  // code points of valid UTF-8
  size_t n = 0;
  for (char byte : bytes) n += !goes_on(byte);
  return n;
}
inline bool is_one(std::string_view bytes) {  // one whole code point and nothing else
  if (bytes.empty()) return false;
  CodePoint c = decode(bytes.data(), bytes.data() + bytes.size());
  return c.valid && c.len == bytes.size();
}
// `bytes` itself where valid, else a copy in `storage` with U+FFFD for every invalid sequence.
std::string_view replace_invalid(std::string_view bytes, std::string& storage);

}  // namespace ibid::utf8
