// Grammars of every language: the first byte says which, the rest is the text. Whatever it is, compiling ends with a
// grammar or a sentence within its steps; and masks of what was compiled are those of brute force, none of them empty
// before an end.
#include <array>
#include <cstdint>
#include <string>

#include "sample/grammar/matcher.h"
#include "walk_masks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ibid::grammar;
  constexpr std::array kLanguages = {Language::kJsonSchema, Language::kRegex, Language::kGbnf, Language::kLark,
                                     Language::kStructuralTag};
  if (size == 0) return 0;
  static const auto trie = testing::adversarial("{}[]\",:a1 \n").trie();
  const Source source{.language = kLanguages[data[0] % kLanguages.size()],
                      .is_strict = data[0] >= 128,
                      .text = std::string(reinterpret_cast<const char*>(data) + 1, size - 1)};
  Fuel fuel(200'000);
  Grammar grammar(fuel);
  const FindToken find = [](std::string_view name) {
    return name == "<a>" ? ibid::TokenId{300} : ibid::TokenId::kNone;
  };
  if (!read(source, find, grammar)) return 0;
  auto automaton = compile(grammar, *trie);
  if (!automaton) return 0;
  TokenMasks masks(*automaton, trie, 1 << 18);
  testing::walk_masks(masks, {data, size});
  return 0;
}
