#include "sample/grammar/regex_sets.h"

#include <array>

#include "text/tokenizer/unicode.h"

namespace ibid::grammar {
namespace {

constexpr std::array<const char*, 30> kCategoryNames = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                                        "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                                        "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn", "Cs"};
struct LongName {
  std::string_view name, code;
};
constexpr LongName kLongNames[] = {{"Letter", "L"},
                                   {"Uppercase_Letter", "Lu"},
                                   {"Lowercase_Letter", "Ll"},
                                   {"Mark", "M"},
                                   {"Number", "N"},
                                   {"Decimal_Number", "Nd"},
                                   {"digit", "Nd"},
                                   {"Punctuation", "P"},
                                   {"punct", "P"},
                                   {"Symbol", "S"},
                                   {"Separator", "Z"},
                                   {"Space_Separator", "Zs"},
                                   {"Other", "C"},
                                   {"Control", "Cc"},
                                   {"cntrl", "Cc"},
                                   {"Math_Symbol", "Sm"},
                                   {"Currency_Symbol", "Sc"}};

// All categories at once, at the first use.
const std::array<CodeSet, 30>& categories() {
  static const std::array<CodeSet, 30> sets = [] {
    std::array<CodeSet, 30> made;
    uint32_t begin = 0;
    for (uint32_t c = 1; c <= kMaxCodePoint + 1; ++c) {
      if (c <= kMaxCodePoint && unicode::category(c) == unicode::category(begin)) continue;
      made[unicode::category(begin)].add(begin, c - 1);
      begin = c;
    }
    for (CodeSet& set : made) static_cast<void>(set.ranges());  // the normal form, before others read it
    return made;
  }();
  return sets;
}

}  // namespace

CodeSet regex_digits() { return {{'0', '9'}}; }
CodeSet regex_words() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
// WhiteSpace and LineTerminator of ECMA-262, sections 12.2 and 12.3.
CodeSet regex_spaces() {
  return {{9, 13},          {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}

std::optional<CodeSet> regex_property(std::string_view name) {
  for (std::string_view prefix : {"gc=", "General_Category="})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  if (name == "Any") return CodeSet::all();
  if (name == "ASCII") return CodeSet{{0, 0x7F}};
  for (const LongName& known : kLongNames)
    if (known.name == name) name = known.code;
  CodeSet set;
  bool is_known = false;
  for (size_t i = 0; i < kCategoryNames.size() && !name.empty() && name.size() <= 2; ++i) {
    if (!std::string_view(kCategoryNames[i]).starts_with(name)) continue;
    is_known = true;
    set.add(categories()[i]);
  }
  return is_known ? std::optional(std::move(set)) : std::nullopt;
}

}  // namespace ibid::grammar
