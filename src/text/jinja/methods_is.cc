// The methods of str that classify characters: isdigit() and its kin.
#include "text/jinja/text_ops.h"

namespace ibid::jinja {
namespace {

// all characters satisfy `test`, and there is one
template <typename Test>
Value every(Machine& m, const Value& self, Args& args, Test test) {
  if (!Params(m, args, "the method", {}) || !m.spend(self.text().size() / 16)) return {};
  bool yes = self.text().size() > 0;
  for (size_t i = 0; yes && i < self.text().size();) yes = test(next_char(self.str(), i));
  return Value::boolean(yes);
}

template <CharSet set>
Value all_in(Machine& m, const Value& self, Args& args) {
  return every(m, self, args, [](uint32_t c) { return is_in(set, c); });
}

Value isalnum(Machine& m, const Value& self, Args& args) {
  return every(m, self, args, [](uint32_t c) {
    return is_in(CharSet::kAlpha, c) || is_in(CharSet::kDecimal, c) || is_in(CharSet::kDigit, c) ||
           is_in(CharSet::kNumeric, c);
  });
}
Value isascii(Machine& m, const Value& self, Args& args) {
  return self.text().size() == 0 ? Value::boolean(true) : every(m, self, args, [](uint32_t c) { return c < 0x80; });
}
Value isprintable(Machine& m, const Value& self, Args& args) {
  if (self.text().size() == 0) return Value::boolean(true);
  return every(m, self, args, [](uint32_t c) { return is_in(CharSet::kPrintable, c); });
}

// At least one cased character, and none of the other case.
template <CharSet wanted, CharSet other>
Value has_case(Machine& m, const Value& self, Args& args) {
  bool some = false;
  Value v = every(m, self, args, [&](uint32_t c) {
    some |= is_in(wanted, c);
    return !is_in(other, c) && !is_in(CharSet::kTitle, c);
  });
  return m.failed() ? v : Value::boolean(v.as_bool() && some);
}

Value istitle(Machine& m, const Value& self, Args& args) {
  bool some = false;
  bool previous_cased = false;
  Value v = every(m, self, args, [&](uint32_t c) {
    if (is_in(CharSet::kUpper, c) || is_in(CharSet::kTitle, c)) {
      if (previous_cased) return false;
      previous_cased = some = true;
    } else if (is_in(CharSet::kLower, c)) {
      if (!previous_cased) return false;
      some = true;
    } else {
      previous_cased = false;
    }
    return true;
  });
  return m.failed() ? v : Value::boolean(v.as_bool() && some);
}

Value isidentifier(Machine& m, const Value& self, Args& args) {
  bool first = true;
  return every(m, self, args, [&](uint32_t c) {
    bool begins = std::exchange(first, false);
    return c == '_' || is_in(CharSet::kAlpha, c) || (!begins && is_in(CharSet::kDecimal, c));
  });
}

struct Method {
  std::string_view name;
  MethodFn fn;
};

constexpr Method kClassifiers[] = {
    {"isalnum", isalnum},
    {"isalpha", all_in<CharSet::kAlpha>},
    {"isascii", isascii},
    {"isdecimal", all_in<CharSet::kDecimal>},
    {"isdigit", all_in<CharSet::kDigit>},
    {"isnumeric", all_in<CharSet::kNumeric>},
    {"isspace", all_in<CharSet::kSpace>},
    {"isprintable", isprintable},
    {"islower", has_case<CharSet::kLower, CharSet::kUpper>},
    {"isupper", has_case<CharSet::kUpper, CharSet::kLower>},
    {"istitle", istitle},
    {"isidentifier", isidentifier},
};

}  // namespace

MethodFn find_classifier(std::string_view name) {
  for (const Method& method : kClassifiers) {
    if (method.name == name) return method.fn;
  }
  return nullptr;
}

}  // namespace ibid::jinja
