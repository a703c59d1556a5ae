// What a model that finds no end cannot let grow: the digits of a number and the blanks between its values.
#include <gtest/gtest.h>

#include <set>

#include "sample/grammar/json_schema.h"
#include "sample/grammar/states.h"

namespace ibid::grammar {
namespace {

constexpr int kEndless = 200;

std::shared_ptr<const Automaton> automaton_of(const std::string& schema) {
  Fuel fuel;
  Grammar grammar(fuel);
  if (!read_json_schema(schema, {.is_strict = true}, grammar)) return nullptr;
  auto made = Automaton::compile(grammar, {.bytes = std::bitset<256>().set()});
  return made ? std::make_shared<const Automaton>(*std::move(made)) : nullptr;
}

// How many bytes out of `bytes` may follow `begin` at most, whichever they are; -1 where `begin` begins no text.
int longest_run(const std::string& schema, const std::string& begin, std::string_view bytes) {
  const auto automaton = automaton_of(schema);
  if (automaton == nullptr) return -1;
  States states(automaton);
  std::set<StateId> here = {states.after(kInitial, begin)};
  if (here.contains(kDead)) return -1;
  for (int n = 0; n < kEndless; ++n) {
    std::set<StateId> next;
    for (const StateId state : here)
      for (const char& byte : bytes) next.insert(states.after(state, {&byte, 1}));
    next.erase(kDead);
    if (next.empty()) return n;
    here = std::move(next);
  }
  return kEndless;
}

TEST(GrammarGrowth, NumbersHaveSixteenDigitsBeforeThePointAndAfterIt) {
  constexpr std::string_view kDigits = "0123456789";
  for (const char* schema : {"true", R"({"type":"number"})", R"({"type":["number","string"]})"}) {
    for (const auto& [begin, most] : {std::pair{"", 16}, std::pair{"-", 16}, std::pair{"0.", 16}, std::pair{"12.", 16},
                                      std::pair{"1e", 2}, std::pair{"1E-", 2}, std::pair{"-1.5e+", 2}})
      EXPECT_EQ(longest_run(schema, begin, kDigits), most) << schema << " " << begin;
  }
  EXPECT_EQ(longest_run("true", "[0,", kDigits), 16);
  EXPECT_EQ(longest_run(R"({"type":"object"})", R"({"a":[{"b":-)", kDigits), 16);
  EXPECT_EQ(longest_run(R"({"type":"integer"})", "", kDigits), 16);
  EXPECT_EQ(longest_run(R"({"type":"integer"})", "1.", kDigits), -1);
  EXPECT_EQ(longest_run(R"({"type":"integer"})", "1e", kDigits), -1);
}

TEST(GrammarGrowth, NumbersUnderLimitsHaveNoMoreDigitsThanTheseOrThat) {
  for (const char* limit : {R"("minimum":0)", R"("exclusiveMinimum":-1.5)", R"("maximum":100)", R"("multipleOf":0.25)",
                            R"("multipleOf":7)", R"("not":{"const":5})", R"("minimum":0,"maximum":1)",
                            R"("not":{"multipleOf":3})", R"("not":{"type":"integer"})"}) {
    const std::string schema = R"({"type":"number",)" + std::string(limit) + "}";
    for (const char* begin : {"", "-", "0.", "1.", "-1.", "-0."})
      EXPECT_LE(longest_run(schema, begin, "0123456789"), 16) << schema << " " << begin;
    EXPECT_GE(longest_run(schema, "", "0123456789"), 1) << schema;
  }
  EXPECT_EQ(longest_run(R"({"type":"integer","maximum":12345678901234567890123})", "", "0123456789"), 23);
  EXPECT_EQ(longest_run(R"({"type":"number","maximum":0.12345678901234567890123})", "0.", "0123456789"), 24)
      << "one more than the limit has";
}

TEST(GrammarGrowth, BlanksAreTwoEndsOfLinesAndTwentyMoreAtMost) {
  for (const char* begin : {"{", R"({"a":)", R"({"a":1,)", R"({"a":[)", R"({"a":[1,)", R"({"a":1)"})
    EXPECT_EQ(longest_run(R"({"type":"object"})", begin, " \t\n\r"), 22) << begin;
  for (const char* begin : {"", R"({"a")", "{}"})
    EXPECT_EQ(longest_run(R"({"type":"object"})", begin, " \t\n\r"), 0) << begin;
}

}  // namespace
}  // namespace ibid::grammar
