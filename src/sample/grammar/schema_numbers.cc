#include "sample/grammar/schema_numbers.h"

#include <algorithm>
#include <array>

#include "sample/grammar/regex.h"

namespace ibid::grammar {
namespace {

constexpr size_t kDigits = 16;          // before and after the point, where a schema names no more
constexpr int64_t kMaxStates = 20'000;  // of an automaton that counts remainders

std::string times(size_t n) { return "\\d{" + std::to_string(n) + "}"; }

// An expression for the unsigned texts whose value is at least, or more than, |limit|.
std::string at_least_text(const Decimal& limit, bool is_exclusive) {
  const std::string whole = limit.whole(), fraction = limit.fraction();
  std::string all = "[1-9]" + times(whole.size()) + "\\d*(\\.\\d+)?";
  for (size_t i = 0; i < whole.size(); ++i)
    if (whole[i] < '9')
      all += "|" + whole.substr(0, i) + "[" + static_cast<char>(whole[i] + 1) + "-9]" + times(whole.size() - i - 1) +
             "(\\.\\d+)?";
  for (size_t i = 0; i < fraction.size(); ++i)
    if (fraction[i] < '9')
      all += "|" + whole + "\\." + fraction.substr(0, i) + "[" + static_cast<char>(fraction[i] + 1) + "-9]\\d*";
  if (is_exclusive) {
    all += "|" + whole + "\\." + fraction + "\\d*[1-9]\\d*";
  } else if (fraction.empty()) {
    all += "|" + whole + "(\\.\\d+)?";
  } else {
    all += "|" + whole + "\\." + fraction + "\\d*";
  }
  return "(" + all + ")";
}

std::string same_text(const Decimal& value) {
  if (value.is_zero()) return "-?0(\\.0+)?";
  const std::string fraction = value.fraction();
  return (value.is_negative ? "-" : "") + value.whole() + (fraction.empty() ? "(\\.0+)?" : "\\." + fraction + "0*");
}

Result<CodeDfa> expression(const std::string& text, Fuel& fuel) { return read_regex(text, RegexUse::kWhole, fuel); }

// The divisor without its point.
Result<int64_t> modulus_of(const Decimal& divisor) {
  if (divisor.is_zero() || divisor.is_huge()) return unsupported("the divisor is out of range");
  const int64_t n_after = std::max<int64_t>(0, -divisor.exponent);
  int64_t modulus = 0;
  for (char digit : divisor.digits) modulus = std::min<int64_t>(modulus * 10 + (digit - '0'), kMaxStates + 1);
  for (int64_t i = 0; i < divisor.exponent; ++i) modulus = std::min<int64_t>(modulus * 10, kMaxStates + 1);
  if (modulus * (n_after + 2) > kMaxStates) return unsupported("its automaton of remainders is too large");
  return modulus;
}

// Texts whose value is a multiple: remainders of the digits that were read, with how many of them stand after the
// point.
Result<CodeDfa> multiples_of(const Decimal& divisor, Fuel& fuel) {
  ASSIGN_OR_RETURN(const int64_t modulus, modulus_of(divisor));
  const int64_t n_after = std::max<int64_t>(0, -divisor.exponent);
  CodeNfa nfa(fuel);
  std::array<uint32_t, 10> digits{};
  for (uint32_t d = 0; d < 10; ++d) digits[d] = nfa.sets.add(CodeSet{{'0' + d, '0' + d}});
  const uint32_t point = nfa.sets.add(CodeSet{{'.', '.'}});
  auto state = [&](int64_t place, int64_t rest) { return static_cast<uint32_t>(2 + place * modulus + rest); };
  nfa.n_states = static_cast<uint32_t>(2 + (n_after + 2) * modulus);
  nfa.accept = 1;
  const auto start = state(0, 0);
  nfa.add(0, start);
  const uint32_t after_sign = nfa.add_state();
  nfa.add(0, after_sign, CodeSet{{'-', '-'}});
  nfa.add(after_sign, start);
  if (!fuel.burn((n_after + 2) * modulus * 60)) return out_of_fuel();
  // place 0: before the point; 1 + j: j digits after it.
  for (int64_t place = 0; place < n_after + 2; ++place) {
    const int64_t n = std::max<int64_t>(0, place - 1);
    for (int64_t rest = 0; rest < modulus; ++rest) {
      int64_t scaled = rest;
      for (int64_t i = n; i < n_after; ++i) scaled = scaled * 10 % modulus;
      if (scaled == 0) nfa.add(state(place, rest), nfa.accept);
      if (place == 0) nfa.add_set(state(0, rest), state(1, rest), point);
      if (place == n_after + 1) {
        nfa.add_set(state(place, rest), state(place, rest), digits[0]);
        continue;
      }
      for (uint32_t digit = 0; digit < 10; ++digit)
        nfa.add_set(state(place, rest), state(place == 0 ? 0 : place + 1, (rest * 10 + digit) % modulus),
                    digits[digit]);
    }
  }
  return CodeDfa::make(nfa, fuel);
}

}  // namespace

void NumberRules::at_least(NumberLimit limit) {
  const int order = low ? limit.value.compare(low->value) : 1;
  if (order > 0 || (order == 0 && limit.is_exclusive)) low = std::move(limit);
}

void NumberRules::at_most(NumberLimit limit) {
  const int order = high ? limit.value.compare(high->value) : -1;
  if (order < 0 || (order == 0 && limit.is_exclusive)) high = std::move(limit);
}

bool NumberRules::is_empty() const {
  if (is_integer && is_fraction) return true;
  if (!low || !high) return false;
  const int order = low->value.compare(high->value);
  return order > 0 || (order == 0 && (low->is_exclusive || high->is_exclusive));
}

bool NumberRules::allows(const Decimal& number) const {
  if (number.is_huge()) return is_free();
  if ((is_integer && !number.is_integer()) || (is_fraction && number.is_integer())) return false;
  if (low && (number.compare(low->value) < 0 || (low->is_exclusive && number.compare(low->value) == 0))) return false;
  if (high && (number.compare(high->value) > 0 || (high->is_exclusive && number.compare(high->value) == 0)))
    return false;
  auto divides = [&](const Decimal& d) { return number.is_multiple_of(d); };
  return std::all_of(multiples.begin(), multiples.end(), divides) &&
         std::none_of(no_multiples.begin(), no_multiples.end(), divides) &&
         std::none_of(excluded.begin(), excluded.end(), [&](const Decimal& d) { return number.compare(d) == 0; });
}

Status multiples_can_be_held(const Decimal& divisor) {
  TRY(modulus_of(divisor));
  return {};
}

Result<CodeDfa> number_texts(const NumberRules& rules, Fuel& fuel) {
  size_t n_whole = kDigits, n_after = kDigits;
  auto make_room = [&](const Decimal& d) {
    n_whole = std::max(n_whole, d.whole().size() + 1);
    n_after = std::max(n_after, d.fraction().size() + 1);
  };
  for (const auto& limit : {rules.low, rules.high})
    if (limit) {
      if (limit->value.is_huge()) return unsupported("the limit is out of range");
      make_room(limit->value);
    }
  for (const Decimal& d : rules.multiples)
    if (!d.is_huge()) make_room(d);
  const std::string whole = "[1-9]\\d{0," + std::to_string(n_whole - 1) + "}";
  std::string base = "0|-?" + whole;
  if (!rules.is_integer) base += "|-?(0|" + whole + ")\\.\\d{1," + std::to_string(n_after) + "}";
  ASSIGN_OR_RETURN(CodeDfa texts, expression(base, fuel));
  auto narrow = [&](CodeDfa::How how, Result<CodeDfa> other) -> Status {
    ASSIGN_OR_RETURN(const CodeDfa by, std::move(other));
    ASSIGN_OR_RETURN(texts, CodeDfa::combine(texts, by, how, fuel));
    return {};
  };
  using How = CodeDfa::How;
  if (rules.is_fraction) TRY(narrow(How::kFirstOnly, expression("-?\\d+(\\.0+)?", fuel)));
  if (rules.low) {
    const Decimal& limit = rules.low->value;
    if (limit.is_negative) {
      TRY(narrow(How::kFirstOnly, expression("-" + at_least_text(limit, !rules.low->is_exclusive), fuel)));
    } else {
      TRY(narrow(How::kBoth, expression(at_least_text(limit, rules.low->is_exclusive), fuel)));
    }
  }
  if (rules.high) {
    const Decimal& limit = rules.high->value;
    if (limit.is_negative) {
      TRY(narrow(How::kBoth, expression("-" + at_least_text(limit, rules.high->is_exclusive), fuel)));
    } else {
      TRY(narrow(How::kFirstOnly, expression(at_least_text(limit, !rules.high->is_exclusive), fuel)));
      if (limit.is_zero() && rules.high->is_exclusive) TRY(narrow(How::kFirstOnly, expression("-0(\\.0+)?", fuel)));
    }
  }
  for (const Decimal& d : rules.multiples) TRY(narrow(How::kBoth, multiples_of(d, fuel)));
  for (const Decimal& d : rules.no_multiples) TRY(narrow(How::kFirstOnly, multiples_of(d, fuel)));
  for (const Decimal& d : rules.excluded)
    if (!d.is_huge()) TRY(narrow(How::kFirstOnly, expression(same_text(d), fuel)));
  return texts;
}

}  // namespace ibid::grammar
