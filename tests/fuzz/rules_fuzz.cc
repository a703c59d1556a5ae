// Grammars as bytes, as records keep them, and grammars that wait for patterns. The first byte selects: 'r' and the
// bytes; else a pattern, a zero byte, and GBNF. Whatever it is, the end is a grammar or a sentence, what is read is
// written alike, and masks of what was compiled are those of brute force.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "sample/grammar/languages.h"
#include "sample/grammar/lazy.h"
#include "sample/grammar/matcher.h"
#include "sample/grammar/rules_bytes.h"
#include "walk_masks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ibid::grammar;
  if (size == 0) return 0;
  static const auto trie = testing::adversarial("{}ab1 \n").trie();
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  Fuel fuel(200'000);
  Grammar grammar(fuel);
  if (data[0] == 'r') {
    if (!read_rules(text, grammar)) return 0;
  } else {
    const size_t zero = text.find('\0');
    const Trigger::Kind kind = data[0] == 'w' ? Trigger::Kind::kWhole : Trigger::Kind::kPattern;
    if (zero == 0 || zero == text.npos || !read_gbnf(text.substr(zero + 1), {}, grammar)) return 0;
    if (!wait_for({{.text = std::string(text.substr(0, zero)), .kind = kind}, {.text = "{1"}}, grammar)) return 0;
  }
  const std::string bytes = write_rules(grammar);
  auto automaton = compile(grammar, *trie);
  Fuel fuel_again(400'000);
  Grammar again(fuel_again);
  if (automaton && (!read_rules(bytes, again) || write_rules(again) != bytes)) std::abort();
  if (!automaton) return 0;
  TokenMasks masks(*automaton, trie, 1 << 18);
  testing::walk_masks(masks, {data, size});
  return 0;
}
