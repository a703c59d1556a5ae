// Grammars of every language: the first byte says which, the rest is the text. Whatever it is, compiling ends with a
// grammar or a sentence within its steps; and masks of what was compiled are those of brute force, none of them empty
// before an end.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "sample/grammar/matcher.h"
#include "sample/grammar/testing/vocabularies.h"

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
  std::vector<uint32_t> mask(trie->mask_words());
  StateId state = kInitial;
  for (size_t step = 0; step < 8 && !masks.states().is_closed(state); ++step) {
    masks.fill(state, mask);
    if (mask != testing::brute_force(masks, state)) std::abort();
    int32_t next = -1;
    for (int32_t i = 0, at = data[step % size] * 7; i < trie->vocab_size() && next < 0; ++i) {
      const int32_t t = (at + i) % trie->vocab_size();
      if (mask[static_cast<size_t>(t) / 32] >> (t % 32) & 1) next = t;
    }
    if (next < 0 && !masks.states().accepts(state)) std::abort();
    if (next < 0) break;
    state = masks.after(state, ibid::TokenId{next});
    masks.forget_others({&state, 1});
  }
  return 0;
}
