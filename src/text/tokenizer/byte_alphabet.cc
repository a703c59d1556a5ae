#include "text/tokenizer/byte_alphabet.h"

#include "base/utf8.h"

namespace ibid::byte_alphabet {
namespace {

constexpr bool is_printable(int b) {
  return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

// The 68 bytes that do not print stand, in order, from U+0100 on.
constexpr std::array<char32_t, 256> kCodePoints = [] {
  std::array<char32_t, 256> t = {};
  char32_t next = 0x100;
  for (int b = 0; b < 256; ++b) t[static_cast<size_t>(b)] = is_printable(b) ? static_cast<char32_t>(b) : next++;
  return t;
}();
constexpr std::array<int16_t, 0x144> kBytes = [] {
  std::array<int16_t, 0x144> t = {};
  for (int16_t& b : t) b = -1;
  for (size_t b = 0; b < 256; ++b) t[kCodePoints[b]] = static_cast<int16_t>(b);
  return t;
}();

}  // namespace

std::optional<unsigned char> byte_of(char32_t c) {
  if (c >= kBytes.size() || kBytes[c] < 0) return std::nullopt;
  return static_cast<unsigned char>(kBytes[c]);
}

const std::array<std::string, 256>& spellings() {
  static const std::array<std::string, 256> kSpellings = [] {
    std::array<std::string, 256> t;
    for (size_t b = 0; b < 256; ++b) utf8::append(kCodePoints[b], t[b]);
    return t;
  }();
  return kSpellings;
}

void append_spelled(std::string_view bytes, std::string& out) {
  const std::array<std::string, 256>& spelled = spellings();
  for (char c : bytes) out += spelled[static_cast<unsigned char>(c)];
}

bool append_bytes(std::string_view token, std::string& out) {
  size_t before = out.size();
  for (const char *p = token.data(), *end = p + token.size(); p < end;) {
    if (*p >= '!' && *p <= '~') {
      out.push_back(*p++);
      continue;
    }
    // All other letters of the alphabet have two bytes.
    auto first = static_cast<unsigned char>(*p);
    auto second = static_cast<unsigned char>(end - p >= 2 ? p[1] : 0);
    bool two = first >= 0xC2 && first <= 0xDF && (second & 0xC0) == 0x80;
    std::optional<unsigned char> byte = two ? byte_of((first & 0x1Fu) << 6 | (second & 0x3Fu)) : std::nullopt;
    if (!byte) {
      out.resize(before);
      return false;
    }
    out.push_back(static_cast<char>(*byte));
    p += 2;
  }
  return true;
}

}  // namespace ibid::byte_alphabet
