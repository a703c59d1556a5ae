// Grammars of every language: the first byte selects it, the rest is the text. Whatever it is, compiling ends with a
// grammar or a sentence within its steps; and masks of what was compiled are those of brute force, none of them empty
// before an end. A run is to be cheap, so that a million of them are soon had: there are few steps for compiling, and
// few tokens. IBID_FUZZ_LANGUAGE, a digit, is the language of all runs, whatever their first byte.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "sample/grammar/matcher.h"
#include "walk_masks.h"

namespace {

constexpr int64_t kSteps = 40'000;

size_t language_of(uint8_t first) {
  static const char* pinned = std::getenv("IBID_FUZZ_LANGUAGE");
  return pinned != nullptr ? static_cast<size_t>(pinned[0] - '0') : first;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ibid::grammar;
  constexpr std::array kLanguages = {Language::kJsonSchema, Language::kRegex, Language::kGbnf, Language::kLark,
                                     Language::kStructuralTag};
  if (size == 0) return 0;
  static const auto trie = testing::adversarial("{}[]\",:a1 \n", 2).trie();
  const Source source{.language = kLanguages[language_of(data[0]) % kLanguages.size()],
                      .is_strict = data[0] >= 128,
                      .text = std::string(reinterpret_cast<const char*>(data) + 1, size - 1)};
  Fuel fuel(kSteps);
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
