// What % and str.format share: the parts of a conversion, and numbers as text.
#pragma once

#include "text/jinja/machine.h"

namespace ibid::jinja {

inline constexpr int64_t kMaxPrecision = 1000;
inline constexpr int64_t kMaxWidth = int64_t{1} << 40;  // room() refuses long before

// One conversion or replacement field.
struct Spec {
  char32_t fill = ' ';
  char align = 0;  // < > ^ =
  char sign = '-';
  bool alternate = false, zero = false;
  char group = 0;  // , or _
  int64_t width = 0, precision = -1;
  char type = 0;
};

std::string digits_of(uint64_t n, unsigned base, bool upper);
// `prefix` (sign, 0x) stands before zero padding; `align` where the spec names none.
void append_padded(Machine& m, Text& out, const Spec& spec, std::string_view prefix, const Text& body, char align);
std::string grouped(const std::string& digits, char group, int every);
std::string float_text(double d, const Spec& spec);  // of the magnitude
std::string sign_text(bool negative, char sign);

}  // namespace ibid::jinja
