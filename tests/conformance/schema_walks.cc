// Answers at random under the masks of schemas: schema_walks VOCABULARY.gguf. Reads from standard input a JSON object a
// line: {"schema": text of a schema, "walks": how many, "seed"}; "gbnf" in the place of "schema" is the text of a
// grammar of llama.cpp's. Writes for each a line: {"refused": sentence}, or
// {"ignored": sentences, "answers": texts, "cut": how many walks had no end within their tokens, "tokens"}. Not strict.
//
// Each walk has so many tokens, drawn too, and closes in time. Where many tokens may come, as inside strings, every
// second one is punctuation where there is some; where few may, the first byte is drawn and then one of its tokens, so
// that rare parts of a grammar are drawn as often as parts with many spellings.
#include <algorithm>
#include <bit>
#include <iostream>
#include <random>

#include "base/check.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "format/gguf.h"
#include "format/gguf_vocabulary.h"
#include "sample/grammar/json_schema.h"
#include "sample/grammar/languages.h"
#include "sample/grammar/token_masks.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid::grammar {
namespace {

constexpr size_t kMany = 1024;
constexpr uint32_t kLeastTokens = 8, kMostTokens = 160;

struct Words {
  std::vector<std::string> texts;
  std::shared_ptr<const TokenTrie> trie;
  std::vector<uint32_t> marks;  // a bit for each token that may end a string, a list or an object
};

Words words_of(const char* path) {
  auto file = open_gguf(path);
  CHECK(file.ok());
  auto vocabulary = vocabulary_from_gguf(*file);
  CHECK(vocabulary.ok());
  auto tokenizer = Tokenizer::from_vocabulary(*std::move(vocabulary));
  CHECK(tokenizer.ok());
  Words words;
  for (int t = 0; t < (*tokenizer)->vocab_size(); ++t) words.texts.emplace_back((*tokenizer)->token_bytes(TokenId{t}));
  words.trie = std::make_shared<const TokenTrie>(std::vector<std::string_view>(words.texts.begin(), words.texts.end()));
  words.marks.resize(words.trie->mask_words());
  for (size_t t = 0; t < words.texts.size(); ++t)
    if (words.texts[t].size() < 4 && words.texts[t].find_first_of("\"]}") != std::string::npos)
      words.marks[t / 32] |= 1u << t % 32;
  return words;
}

class Walker {
 public:
  Walker(const Words& words, TokenMasks& masks, uint64_t seed) : words_(words), masks_(masks), rng_(seed) {
    mask_.resize(words.trie->mask_words());
  }
  // The answer; false where it had no end.
  bool walk(std::string& text) {
    text.clear();
    StateId state = kInitial;
    uint32_t left = kLeastTokens + static_cast<uint32_t>(rng_() % (kMostTokens - kLeastTokens));
    left = std::max(left, 2 * masks_.states().shortest(state));
    const bool is_even = rng_() % 2 == 0;
    for (; left > 0 && !masks_.states().is_closed(state); --left) {
      if (masks_.states().accepts(state) && rng_() % 8 == 0) break;
      masks_.fill(state, mask_, left);
      const int32_t token = draw(is_even);
      if (token < 0) break;
      ++n_tokens_;
      text += words_.texts[static_cast<size_t>(token)];
      state = masks_.after(state, TokenId{token});
      CHECK(state != kDead, "the mask and the step disagree");
      if (masks_.is_over_budget()) masks_.forget_others({&state, 1});
    }
    return masks_.states().accepts(state);
  }
  int64_t n_tokens() const { return n_tokens_; }

 private:
  // -1: none may come.
  int32_t draw(bool is_even) {
    size_t n = 0, n_marks = 0;
    for (size_t w = 0; w < mask_.size(); ++w) {
      n += static_cast<size_t>(std::popcount(mask_[w]));
      n_marks += static_cast<size_t>(std::popcount(mask_[w] & words_.marks[w]));
    }
    if (n == 0) return -1;
    if (n > kMany) {
      const bool is_mark = n_marks > 0 && rng_() % 2 == 0;
      return nth(rng_() % (is_mark ? n_marks : n), is_mark);
    }
    if (is_even) return nth(rng_() % n, false);
    tokens_.clear();
    for (size_t w = 0; w < mask_.size(); ++w)
      for (uint32_t bits = mask_[w]; bits != 0; bits &= bits - 1)
        tokens_.push_back(static_cast<int32_t>(32 * w) + std::countr_zero(bits));
    std::ranges::stable_sort(tokens_, {}, [&](int32_t t) { return first_byte(t); });
    std::vector<size_t> begins;
    for (size_t i = 0; i < tokens_.size(); ++i)
      if (i == 0 || first_byte(tokens_[i]) != first_byte(tokens_[i - 1])) begins.push_back(i);
    const size_t group = rng_() % begins.size();
    const size_t end = group + 1 < begins.size() ? begins[group + 1] : tokens_.size();
    return tokens_[begins[group] + rng_() % (end - begins[group])];
  }
  unsigned char first_byte(int32_t t) const {
    const std::string& text = words_.texts[static_cast<size_t>(t)];
    return text.empty() ? 0 : static_cast<unsigned char>(text[0]);
  }
  int32_t nth(size_t at, bool is_mark) const {
    for (size_t w = 0;; ++w) {
      uint32_t bits = is_mark ? mask_[w] & words_.marks[w] : mask_[w];
      const auto here = static_cast<size_t>(std::popcount(bits));
      if (at >= here) {
        at -= here;
        continue;
      }
      for (; at > 0; --at) bits &= bits - 1;
      return static_cast<int32_t>(32 * w) + std::countr_zero(bits);
    }
  }

  const Words& words_;
  TokenMasks& masks_;
  std::mt19937_64 rng_;
  std::vector<uint32_t> mask_;
  std::vector<int32_t> tokens_;
  int64_t n_tokens_ = 0;
};

void answer(const Json& line, const Words& words, std::string& out) {
  JsonWriter json(out);
  json.begin_object();
  Fuel fuel;
  Grammar grammar(fuel);
  SchemaOptions options;
  options.is_strict = false;
  SchemaReport report;
  report.most = 1 << 20;
  auto refuse = [&](const Error& error) { json.field("refused", error.message).end_object(); };
  if (const Json* gbnf = line.find("gbnf")) {
    const Status read = read_gbnf(
        *gbnf->string(), [](std::string_view) { return TokenId{-1}; }, grammar);
    if (!read) return refuse(read.error());
  } else {
    Result<RuleId> root = read_json_schema(*line.find("schema")->string(), options, grammar, &report);
    if (!root) return refuse(root.error());
  }
  Result<Automaton> automaton = Automaton::compile(grammar, {.bytes = words.trie->single_bytes()});
  if (!automaton) return refuse(automaton.error());
  TokenMasks masks(std::make_shared<const Automaton>(*std::move(automaton)), words.trie);
  Walker walker(words, masks, static_cast<uint64_t>(*line.find("seed")->integer()));
  int64_t n_cut = 0;
  std::string text;
  json.key("answers").begin_array();
  for (int64_t walks = *line.find("walks")->integer(); walks > 0; --walks) {
    if (walker.walk(text))
      json.string(text);
    else
      ++n_cut;
  }
  json.end_array().field("cut", n_cut).field("tokens", walker.n_tokens()).key("ignored").begin_array();
  for (const std::string& sentence : report.ignored) json.string(sentence);
  json.end_array().end_object();
}

}  // namespace
}  // namespace ibid::grammar

int main(int argc, char** argv) {
  CHECK(argc == 2, "one vocabulary");
  const ibid::grammar::Words words = ibid::grammar::words_of(argv[1]);
  for (std::string line, out; std::getline(std::cin, line); out.clear()) {
    auto json = ibid::parse_json(line);
    CHECK(json.ok());
    ibid::grammar::answer(*json, words, out);
    std::cout << out << std::endl;
  }
}
