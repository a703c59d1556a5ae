// Reads cases from standard input, one JSON object a line: {"schema": text of a schema, "strict", "formats": booleans,
// "texts": lists of spellings of one value each}. Writes for each a line: {"refused": sentence}, or {"accepted": a
// boolean for each value, "ignored": sentences}. A value is accepted where one of its spellings is, token by token
// under masks and to an end, in the same way in each of 20 random tokenisations; where these disagree the program
// aborts.
#include <algorithm>
#include <iostream>
#include <random>

#include "base/check.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "sample/grammar/json_schema.h"
#include "sample/grammar/token_masks.h"

namespace ibid::grammar {
namespace {

constexpr int kTokenisations = 20;

// Single bytes, and pieces of the texts themselves.
std::shared_ptr<const TokenTrie> vocabulary(const std::vector<std::string>& texts, std::vector<std::string>& words) {
  words.clear();
  for (int b = 0; b < 256; ++b) words.push_back(std::string(1, static_cast<char>(b)));
  for (const std::string& text : texts)
    for (size_t i = 0; i < text.size() && words.size() < 4000; ++i)
      for (size_t n = 2; n <= 5 && i + n <= text.size(); ++n) words.push_back(text.substr(i, n));
  std::sort(words.begin() + 256, words.end());
  words.erase(std::unique(words.begin() + 256, words.end()), words.end());
  return std::make_shared<const TokenTrie>(std::vector<std::string_view>(words.begin(), words.end()));
}

bool accepts(TokenMasks& masks, const std::vector<std::string>& words, const std::string& text, std::mt19937& rng) {
  std::vector<uint32_t> mask(masks.trie().mask_words());
  StateId state = kInitial;
  for (size_t i = 0; i < text.size();) {
    auto byte = static_cast<size_t>(static_cast<unsigned char>(text[i]));
    size_t token = byte;
    for (size_t n = 2 + rng() % 5; n >= 2; --n) {
      auto word = std::lower_bound(words.begin() + 256, words.end(), text.substr(i, n));
      if (i + n <= text.size() && word != words.end() && *word == text.substr(i, n)) {
        token = static_cast<size_t>(word - words.begin());
        break;
      }
    }
    masks.fill(state, mask);
    const bool is_allowed = mask[token / 32] >> (token % 32) & 1;
    const StateId next = masks.after(state, TokenId{static_cast<int32_t>(token)});
    CHECK(is_allowed == (next != kDead), "the mask and the step disagree");
    if (!is_allowed) return false;
    state = next;
    i += words[token].size();
  }
  return masks.states().accepts(state);
}

void answer(const Json& line, std::string& out) {
  JsonWriter json(out);
  json.begin_object();
  Fuel fuel;
  Grammar grammar(fuel);
  SchemaOptions options;
  options.is_strict = *line.find("strict")->boolean();
  options.holds_formats = *line.find("formats")->boolean();
  SchemaReport report;
  auto refuse = [&](const Error& error) { json.field("refused", error.message).end_object(); };
  Result<RuleId> root = read_json_schema(*line.find("schema")->string(), options, grammar, &report);
  if (!root) return refuse(root.error());
  std::vector<std::string> texts, words;
  for (const Json& value : *line.find("texts")->array())
    for (const Json& text : *value.array()) texts.push_back(*text.string());
  auto trie = vocabulary(texts, words);
  Result<Automaton> automaton = Automaton::compile(grammar, {.bytes = trie->single_bytes()});
  std::unique_ptr<TokenMasks> masks;
  if (automaton) {
    masks = std::make_unique<TokenMasks>(std::make_shared<const Automaton>(*std::move(automaton)), trie);
  } else if (fuel.is_empty()) {
    return refuse(automaton.error());
  }  // else no text is valid
  std::mt19937 rng(1);
  json.key("accepted").begin_array();
  for (const Json& value : *line.find("texts")->array()) {
    bool is_accepted = false;
    for (const Json& text : *value.array()) {
      if (!masks) break;
      const bool first = accepts(*masks, words, *text.string(), rng);
      for (int i = 1; i < kTokenisations; ++i)
        CHECK(accepts(*masks, words, *text.string(), rng) == first, "the verdict hangs on where tokens end");
      is_accepted |= first;
    }
    json.boolean(is_accepted);
  }
  json.end_array().key("ignored").begin_array();
  for (const std::string& sentence : report.ignored) json.string(sentence);
  json.end_array().field("steps", kCompileSteps - fuel.left()).end_object();
}

}  // namespace
}  // namespace ibid::grammar

int main() {
  for (std::string line, out; std::getline(std::cin, line); out.clear()) {
    auto json = ibid::parse_json(line);
    CHECK(json.ok());
    ibid::grammar::answer(*json, out);
    std::cout << out << std::endl;
  }
}
