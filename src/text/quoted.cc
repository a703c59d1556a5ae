#include "text/quoted.h"

#include "text/utf8.h"

namespace ibid {

std::string quoted(std::string_view text, size_t most) {
  std::string out = "\"";
  const char *p = text.data(), *end = p + text.size();
  while (p < end) {
    utf8::CodePoint c = utf8::decode(p, end);
    if (static_cast<size_t>(p - text.data()) + c.len > most) {
      out += "...";
      break;
    }
    if (c.valid && c.value >= 0x20 && c.value != 0x7F) {
      out.append(p, c.len);
    } else if (c.value == '\n' || c.value == '\t') {
      out += c.value == '\n' ? "\\n" : "\\t";
    } else {
      constexpr std::string_view kDigits = "0123456789ABCDEF";
      for (const char* q = p; q < p + c.len; ++q) {
        auto byte = static_cast<unsigned char>(*q);
        out.append("\\x").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
      }
    }
    p += c.len;
  }
  return out + '"';
}

}  // namespace ibid
