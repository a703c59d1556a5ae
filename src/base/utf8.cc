#include "base/utf8.h"

#include <cstring>

namespace ibid::utf8 {

CodePoint decode_multibyte(const char* p, const char* end) {
  auto byte = [p](size_t i) { return static_cast<unsigned char>(p[i]); };
  size_t left = static_cast<size_t>(end - p);
  unsigned char c = byte(0);
  uint32_t want = 0;
  unsigned char low = 0x80, high = 0xBF;  // what the second byte may be (Unicode table 3-7)
  char32_t value = 0;
  if (c >= 0xC2 && c <= 0xDF) {
    want = 2, value = c & 0x1Fu;
  } else if (c >= 0xE0 && c <= 0xEF) {
    want = 3, value = c & 0x0Fu;
    if (c == 0xE0) low = 0xA0;
    if (c == 0xED) high = 0x9F;
  } else if (c >= 0xF0 && c <= 0xF4) {
    want = 4, value = c & 0x07u;
    if (c == 0xF0) low = 0x90;
    if (c == 0xF4) high = 0x8F;
  } else {
    return {kReplacement, 1, false};
  }
  for (uint32_t i = 1; i < want; ++i) {
    if (i >= left || byte(i) < low || byte(i) > high) return {kReplacement, i, false};
    value = value << 6 | (byte(i) & 0x3Fu);
    low = 0x80, high = 0xBF;
  }
  return {value, want, true};
}

void append(char32_t c, std::string& out) {
  if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) c = kReplacement;
  auto put = [&out](char32_t b) { out.push_back(static_cast<char>(b)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

namespace {

// The first invalid byte, or end.
const char* find_invalid(const char* p, const char* end) {
  while (p < end) {
    uint64_t eight;
    if (end - p >= 8 && (std::memcpy(&eight, p, 8), (eight & 0x8080808080808080u) == 0)) {
      p += 8;
      continue;
    }
    // Most of what is not ASCII has two or three bytes and no special case.
    auto byte = [p](int i) { return static_cast<unsigned char>(p[i]); };
    unsigned char first = byte(0);
    if (first >= 0xC2 && first <= 0xDF && end - p >= 2 && goes_on(p[1])) {
      p += 2;
    } else if (first >= 0xE1 && first <= 0xEF && first != 0xED && end - p >= 3 && goes_on(p[1]) && goes_on(p[2])) {
      p += 3;
    } else {
      CodePoint c = decode(p, end);
      if (!c.valid) return p;
      p += c.len;
    }
  }
  return end;
}

}  // namespace

size_t valid_prefix(std::string_view bytes) {
  return static_cast<size_t>(find_invalid(bytes.data(), bytes.data() + bytes.size()) - bytes.data());
}

bool is_valid(std::string_view bytes) { return valid_prefix(bytes) == bytes.size(); }

bool is_unfinished(std::string_view bytes) {
  if (bytes.empty()) return false;
  const auto first = static_cast<unsigned char>(bytes[0]);
  const CodePoint c = decode(bytes.data(), bytes.data() + bytes.size());
  return !c.valid && c.len == bytes.size() && first >= 0xC2 && first <= 0xF4;
}

std::string_view replace_invalid(std::string_view bytes, std::string& storage) {
  const char* p = bytes.data();
  const char* end = p + bytes.size();
  const char* bad = find_invalid(p, end);
  if (bad == end) return bytes;
  storage.clear();
  storage.reserve(bytes.size() + bytes.size() / 2);
  while (bad != end) {
    storage.append(p, bad);
    append(kReplacement, storage);
    p = bad + decode(bad, end).len;
    bad = find_invalid(p, end);
  }
  storage.append(p, end);
  return storage;
}

}  // namespace ibid::utf8
