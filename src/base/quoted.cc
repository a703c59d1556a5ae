#include "base/quoted.h"

#include "base/utf8.h"

namespace ibid {

std::string shown(std::string_view text, size_t most) {
  std::string out;
  const char *p = text.data(), *end = p + text.size();
  while (p < end) {
    utf8::CodePoint c = utf8::decode(p, end);
    if (static_cast<size_t>(p - text.data()) + c.len > most) return out + "...";
    if (c.value == '"' || c.value == '\\') {
      out.append(1, '\\').append(p, 1);
    } else if (c.value == '\n' || c.value == '\t') {
      out += c.value == '\n' ? "\\n" : "\\t";
    } else if (c.valid && c.value >= 0x20 && (c.value < 0x7F || c.value > 0x9F)) {
      out.append(p, c.len);
    } else {  // also U+0080 to U+009F, which some terminals obey
      constexpr std::string_view kDigits = "0123456789ABCDEF";
      for (const char* q = p; q < p + c.len; ++q) {
        auto byte = static_cast<unsigned char>(*q);
        out.append("\\x").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
      }
    }
    p += c.len;
  }
  return out;
}

}  // namespace ibid
