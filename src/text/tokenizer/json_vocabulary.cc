#include "text/tokenizer/json_vocabulary.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/quoted.h"
#include "text/tokenizer/json_parts.h"
#include "text/tokenizer/json_tables.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/token_map.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid {
namespace {

constexpr std::string_view kWordMark = "\xE2\x96\x81";  // U+2581

// Letters of both cases, numbers, contractions, runs of white space and of punctuation, and several scripts: what
// expressions of pre-tokenizers differ in.
constexpr std::string_view kProbes[] = {
    "Hello, world! It's 2024; we'll see: they've, I'M, you'Re (don't) 'tis.",
    "a  b   c    d\t\te \n\n f\r\n\r\ng \n h   ",
    "   leading spaces\n\n\n   and lines\n",
    "1 12 123 1234 12345 1234567890 3.14159 1,000,000 0x1F 2^10 \xC2\xBD \xE2\x85\xA7 x2y3z",
    "camelCase PascalCase UPPER lowerUPPERlower HTTPServer iPhone McDonald's SHOUTING'S",
    "$100 #tag @user a/b/c \\n {x: [1, 2]} <a href=\"u\">t</a> !!!??? ... --- === += *= // /* */ |x|~`",
    "na\xC3\xAFve caf\xC3\xA9 cafe\xCC\x81 \xC3\x85ngstr\xC3\xB6m Stra\xC3\x9F"
    "e \xC4\xB0stanbul \xC3\x86on",
    "\xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 \xD0\xBC\xD0\xB8\xD1\x80 "
    "\xCE\x93\xCE\xB5\xCE\xB9\xCE\xAC \xCF\x83\xCE\xBF\xCF\x85",
    "\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C\xE4\xB8\x96\xE7\x95\x8C\xE3\x80\x82"
    "2024\xE5\xB9\xB4 "
    "\xE3\x81\x93\xE3\x82\x93\xE3\x81\xAB\xE3\x81\xA1\xE3\x81\xAF\xE3\x82\xAB\xE3\x83\x8A",
    "\xEC\x95\x88\xEB\x85\x95\xED\x95\x98\xEC\x84\xB8\xEC\x9A\x94 \xED\x95\x9C\xEA\xB5\xAD",
    "\xD9\x85\xD8\xB1\xD8\xAD\xD8\xA8\xD8\xA7 \xD9\xA1\xD9\xA2\xD9\xA3 "
    "\xE0\xA4\xA8\xE0\xA4\xAE\xE0\xA4\xB8\xE0\xA5\x8D\xE0\xA4\xA4\xE0\xA5\x87 "
    "\xE0\xB8\xAA\xE0\xB8\xA7\xE0\xB8\xB1\xE0\xB8\xAA\xE0\xB8\x94\xE0\xB8\xB5",
    "\xF0\x9F\x98\x80 \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB \xE2\x9C\x93 \xE2\x82\xAC 5 "
    "\xC2\xA0nbsp \xE2\x80\x94 dash \xE2\x80\x9Cquoted\xE2\x80\x9D \xE2\x80\xA6",
    "def f(x):\n    return x + 1\n\nclass A:\n\tpass  # note\n",
};

// Gives the length of each word in the place of ids.
class WordLengths final : public WordModel {
 public:
  void encode_word(std::string_view word, EncodeScratch&, std::vector<TokenId>& out) const override {
    out.push_back(static_cast<TokenId>(word.size()));
  }
};

std::vector<TokenId> lengths_of_words(std::vector<PreTokenizerStep> steps) {
  const PreTokenizer cuts(std::move(steps), true);
  const WordLengths lengths;
  EncodeScratch scratch;
  std::vector<TokenId> out;
  for (const std::string_view probe : kProbes) {
    scratch.budget = Pattern::Budget::of_text(probe.size());
    cuts.encode(probe, true, lengths, scratch, out);
    out.push_back(TokenId::kNone);
  }
  return out;
}

std::vector<PreTokenizerStep> steps_of(const SplitFamily& family) {
  std::vector<PreTokenizerStep> steps;
  for (NextPiece stage : family.stages) steps.push_back({.kind = PreTokenizerStep::Kind::kKnown, .known = stage});
  steps.push_back({.kind = PreTokenizerStep::Kind::kByteLevel});
  return steps;
}

// GGUF's name of how a byte-level model cuts texts into words: the first of those that cut the probes alike.
Result<std::string> name_of_cuts(std::vector<PreTokenizerStep> steps, bool ignore_merges, bool nfc) {
  const std::vector<TokenId> mine = lengths_of_words(std::move(steps));
  for (const SplitFamily& family : split_families()) {
    if (family.characters || family.ignore_merges != ignore_merges || family.nfc != nfc) continue;
    if (lengths_of_words(steps_of(family)) == mine) return std::string(family.name);
  }
  return unsupported("GGUF has no name for how this tokenizer.json cuts texts into words", "pre_tokenizer");
}

Status add_byte_level(const json_tables::Slices& slices, Vocabulary& v) {
  bool nfc = false;
  if (!slices.normalizer.empty()) {
    ASSIGN_OR_RETURN(const std::vector<NormalizerStep> steps, json_parts::read_normalizer(slices.normalizer));
    nfc = steps.size() == 1 && steps[0].kind == NormalizerStep::Kind::kForm && steps[0].form == unicode::Form::kNfc;
    if (!steps.empty() && !nfc) {
      return unsupported("a byte-level vocabulary in GGUF has no normalizer but NFC, and this one has another",
                         "normalizer");
    }
  }
  ASSIGN_OR_RETURN(json_parts::PreTokenizerParts cuts, json_parts::read_pre_tokenizer(slices.pre_tokenizer));
  ASSIGN_OR_RETURN(v.pre_tokenizer, name_of_cuts(std::move(cuts.steps), slices.model->ignore_merges, nfc));
  return {};
}

// Merges, and of characters the scores too.
Status add_merges(const json_tables::ModelSlices& model, bool byte_level, Vocabulary& v) {
  if (model.merges.empty()) return {};
  if (!model.prefix.empty() || !model.suffix.empty()) {
    return unsupported("a vocabulary in GGUF has no affixes of words, and this one has", "model");
  }
  ASSIGN_OR_RETURN(const TokenMap map, TokenMap::build(v.tokens));
  ASSIGN_OR_RETURN(std::vector<Merge> merges, json_tables::read_merges(model.merges, map, {}));
  std::ranges::stable_sort(merges, {}, &Merge::rank);
  if (byte_level) {
    for (const Merge& m : merges) {
      v.merges.push_back(v.tokens[static_cast<size_t>(m.left)] + " " + v.tokens[static_cast<size_t>(m.right)]);
    }
    return {};
  }
  const auto last = -static_cast<float>(merges.size() + 1);
  v.scores.assign(v.tokens.size(), last);
  for (const Merge& m : merges) {
    float& score = v.scores[static_cast<size_t>(m.result)];
    if (score == last) score = -static_cast<float>(m.rank);
  }
  return {};
}

void mark_first_pieces(Vocabulary& v) {
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    std::string& token = v.tokens[i];
    if (v.types[i] != TokenType::kNormal) continue;
    if (token.starts_with("##")) {
      token.erase(0, 2);
    } else {
      token.insert(0, kWordMark);
    }
  }
}

// A sentence about the first difference.
Status check_alike(const Tokenizer& was, const Tokenizer& is) {
  const Vocabulary& v = is.vocabulary();
  std::string pieces;
  const size_t n = v.tokens.size(), step = std::max<size_t>(1, n / 2000);
  for (size_t i = 0; i < n; ++i) {
    const auto id = static_cast<TokenId>(i);
    if (v.types[i] == TokenType::kUnused) continue;
    if (was.token_bytes(id, true) != is.token_bytes(id, true)) {
      return unsupported("GGUF cannot express this tokenizer.json: token " + std::to_string(i) + " would be read as " +
                         in_quotes(is.token_bytes(id, true)) + " and is " + in_quotes(was.token_bytes(id, true)));
    }
    if (i % step == 0) pieces += was.token_bytes(id);
  }
  const auto check = [&](std::string_view text) -> Status {
    const EncodeOptions options = {.add_special = true};
    const std::vector<TokenId> a = was.encode(text, options), b = is.encode(text, options);
    if (a == b) return {};
    const auto at = std::ranges::mismatch(a, b).in1 - a.begin();
    return unsupported("GGUF cannot express this tokenizer.json: the text that begins with " +
                       in_quotes(text.substr(0, 24)) + " would have other ids from place " + std::to_string(at) +
                       " on");
  };
  TRY(check(""));
  for (const std::string_view probe : kProbes) TRY(check(probe));
  return check(pieces);
}

// One of the forms that GGUF has for it.
Result<Vocabulary> finished(const Tokenizer& was, Vocabulary v) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> is, Tokenizer::from_vocabulary(v));
  TRY(check_alike(was, *is));
  return v;
}

}  // namespace

Result<Vocabulary> vocabulary_from_json(std::string_view json, std::string_view config_json) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> was, Tokenizer::from_json(json, config_json));
  ASSIGN_OR_RETURN(const json_tables::Slices slices, json_tables::read_top(json));
  const json_tables::ModelSlices& model = *slices.model;
  Vocabulary v = was->vocabulary();
  // Without a tokenizer_config.json the special tokens have no names, and what stands around a text has.
  const std::vector<TokenId> around = was->encode("", {.add_special = true});
  if (v.bos == TokenId::kNone && !around.empty() && around.front() != v.eos && model.type != "WordPiece") {
    v.bos = around.front();
    v.add_bos = true;
  }
  const bool byte_level = model.type == "BPE" && slices.pre_tokenizer.find("ByteLevel") != std::string_view::npos;
  if (model.type == "BPE") TRY(add_merges(model, byte_level, v));
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    if (v.tokens[i].empty()) v.tokens[i] = "[PAD" + std::to_string(i) + "]";
  }
  if (byte_level) {
    TRY(add_byte_level(slices, v));
    return finished(*was, std::move(v));
  }
  if (model.type == "BPE") {
    v.model = VocabularyModel::kSentencePieceBpe;
    v.add_space_prefix = false;
    if (auto without = finished(*was, v); without) return without;
    v.add_space_prefix = true;
    return finished(*was, std::move(v));
  }
  if (model.type == "WordPiece") {
    mark_first_pieces(v);
    if (v.bos == TokenId::kNone && !around.empty()) v.bos = around.front();
    if (v.separator == TokenId::kNone && !around.empty()) v.separator = around.back();
    return finished(*was, std::move(v));
  }
  return unsupported(
      "a vocabulary of the kind " + in_quotes(model.type) + " is not written as GGUF; BPE and WordPiece are",
      "model.type");
}

}  // namespace ibid
