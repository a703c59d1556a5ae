// Tokenizer::from_vocabulary: the pipelines of GGUF's families, equal to those of the reference for the same models.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/quoted.h"
#include "text/tokenizer/bpe_model.h"
#include "text/tokenizer/merge_table.h"
#include "text/tokenizer/pipeline.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/word_piece.h"

namespace ibid {
namespace {

using Kind = NormalizerStep::Kind;
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

TokenType type_of(const Vocabulary& v, size_t id) { return v.types.empty() ? TokenType::kNormal : v.types[id]; }

Status check(const Vocabulary& v) {
  size_t n = v.tokens.size();
  if (n == 0) return invalid("the vocabulary has no tokens");
  if (n > size_t{1} << 26)
    return unsupported("the vocabulary has " + std::to_string(n) + " tokens; at most 2^26 are read");
  if (!v.types.empty() && v.types.size() != n) {
    return invalid("the vocabulary has " + std::to_string(n) + " tokens and " + std::to_string(v.types.size()) +
                   " token types; there must be one for each");
  }
  if (!v.scores.empty() && v.scores.size() != n) {
    return invalid("the vocabulary has " + std::to_string(n) + " tokens and " + std::to_string(v.scores.size()) +
                   " scores; there must be one for each");
  }
  for (size_t i = 0; i < v.types.size(); ++i) {
    int type = static_cast<int>(v.types[i]);
    if (type < 1 || type > 6) {
      return invalid("token " + std::to_string(i) + " has type " + std::to_string(type) + "; types are 1 to 6");
    }
    const std::string& t = v.tokens[i];
    if (type == 6 &&
        (t.size() != 6 || !t.starts_with("<0x") || t[5] != '>' || !std::isxdigit(static_cast<unsigned char>(t[3])) ||
         !std::isxdigit(static_cast<unsigned char>(t[4])))) {
      return invalid("token " + std::to_string(i) + " is a byte token spelled " + in_quotes(t) +
                     "; byte tokens are <0x00> to <0xFF>");
    }
  }
  for (size_t i = 0; i < v.scores.size(); ++i) {
    if (!std::isfinite(v.scores[i])) {
      return invalid("the score of token " + std::to_string(i) + " is not a finite number");
    }
  }
  struct {
    const char* name;
    TokenId id;
  } ids[] = {
      {"bos", v.bos}, {"eos", v.eos}, {"unknown", v.unknown}, {"padding", v.padding}, {"separator", v.separator}};
  for (auto [name, id] : ids) {
    if (raw(id) < -1 || raw(id) >= static_cast<int64_t>(n)) {
      return invalid(std::string("the ") + name + " id " + std::to_string(raw(id)) + " is outside the vocabulary of " +
                     std::to_string(n) + " tokens");
    }
  }
  for (TokenId id : v.end_of_generation) {
    if (raw(id) < 0 || raw(id) >= static_cast<int64_t>(n)) {
      return invalid("the end-of-generation id " + std::to_string(raw(id)) + " is outside the vocabulary of " +
                     std::to_string(n) + " tokens");
    }
  }
  return {};
}

Status build_added(Pipeline& p) {
  const Vocabulary& v = p.vocab;
  // Phi-3's special tokens take the white space after them along; its GGUF files do not state it.
  auto spells = [&v](std::string_view s) { return std::find(v.tokens.begin(), v.tokens.end(), s) != v.tokens.end(); };
  bool phi3 = v.model == VocabularyModel::kSentencePieceBpe && !v.types.empty() && spells("<|placeholder1|>") &&
              spells("<|assistant|>");
  std::vector<AddedToken> added;
  for (size_t i = 0; i < v.types.size(); ++i) {
    TokenType type = v.types[i];
    if (type != TokenType::kControl && type != TokenType::kUserDefined && type != TokenType::kUnknown) continue;
    AddedToken t;
    t.content = v.tokens[i];
    t.id = static_cast<TokenId>(i);
    t.special = type != TokenType::kUserDefined;
    t.rstrip = phi3 && t.content != "<unk>" && t.content != "<s>" && t.content != "<|endoftext|>";
    added.push_back(std::move(t));
  }
  ASSIGN_OR_RETURN(p.raw_added, AddedTokens::build(std::move(added)));
  return {};
}

void build_decoding(Pipeline& p, std::span<const DecoderStep> steps) {
  const Vocabulary& v = p.vocab;
  size_t n_bytes = 0;
  for (const std::string& token : v.tokens) n_bytes += token.size();
  p.decoding.reserve(v.tokens.size(), n_bytes);
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    TokenType type = type_of(v, i);
    bool hidden = type == TokenType::kControl || type == TokenType::kUnknown;
    bool literal = hidden || type == TokenType::kUserDefined;
    p.decoding.add(v.tokens[i], literal ? steps.first(0) : steps, hidden);
  }
}

// Spaces become marks, and back; the rules that models over characters share.
void build_space_marks(Pipeline& p) {
  const Vocabulary& v = p.vocab;
  std::vector<NormalizerStep> steps;
  if (v.remove_extra_whitespaces) steps.push_back({.kind = Kind::kSquashSpaces});
  steps.push_back({.kind = Kind::kReplace, .pattern = " ", .content = std::string(kSpaceMark)});
  if (v.add_space_prefix) steps.push_back({.kind = Kind::kPrepend, .content = std::string(kSpaceMark)});
  p.normalizer = Normalizer(std::move(steps));
  DecoderStep decoders[] = {{.kind = DecoderStep::Kind::kByteFallback},
                            {.kind = DecoderStep::Kind::kReplace, .pattern = std::string(kSpaceMark), .content = " "}};
  build_decoding(p, decoders);
  p.decoding.set_strips_leading_space(v.add_space_prefix);
}

BpeOptions character_options(const Vocabulary& v) {
  BpeOptions options;
  options.byte_level = false;
  options.byte_fallback = true;
  options.fuse_unknown = true;
  options.unknown = raw(v.unknown);
  return options;
}

Result<std::vector<Merge>> read_merges(const Pipeline& p) {
  const Vocabulary& v = p.vocab;
  MergeTable table(p.map, {}, v.merges.size());
  auto bad = [&v](size_t rank, const char* why) {
    return invalid("merge " + std::to_string(rank) + ", " + in_quotes(v.merges[rank]) + ", " + why,
                   "tokenizer.ggml.merges");
  };
  for (size_t rank = 0; rank < v.merges.size(); ++rank) {
    std::string_view merge = v.merges[rank];
    size_t space = merge.find(' ', 1);
    if (space == merge.npos || space + 1 == merge.size()) return bad(rank, "is not two tokens with a space between");
    if (auto fault = table.add(merge.substr(0, space), merge.substr(space + 1))) return bad(fault->rank, fault->why);
  }
  if (auto fault = table.finish()) return bad(fault->rank, fault->why);
  return table.take();
}

Status build_bpe(Pipeline& p) {
  const Vocabulary& v = p.vocab;
  const SplitFamily* family = find_split_family(v.pre_tokenizer);
  if (!family) {
    return unsupported("the pre-tokenizer " + in_quotes(v.pre_tokenizer) +
                           " is not known; convert the model again with a name that is, or load its tokenizer.json",
                       "tokenizer.ggml.pre");
  }
  ASSIGN_OR_RETURN(std::vector<Merge> merges, read_merges(p));
  if (family->characters) {
    ASSIGN_OR_RETURN(p.model, BpeModel::build(v.tokens, p.map, merges, character_options(v)));
    build_space_marks(p);
    return {};
  }
  BpeOptions options;
  options.ignore_merges = family->ignore_merges;
  ASSIGN_OR_RETURN(p.model, BpeModel::build(v.tokens, p.map, merges, options));
  if (family->nfc) p.normalizer = Normalizer({{.kind = Kind::kForm, .form = unicode::Form::kNfc}});
  std::vector<PreTokenizerStep> steps;
  for (NextPiece stage : family->stages) steps.push_back({.kind = PreTokenizerStep::Kind::kKnown, .known = stage});
  steps.push_back({.kind = PreTokenizerStep::Kind::kByteLevel});
  p.pre_tokenizer = PreTokenizer(std::move(steps), true);
  DecoderStep byte_level = {.kind = DecoderStep::Kind::kByteLevel};
  build_decoding(p, {&byte_level, 1});
  return {};
}

std::vector<bool> usable_tokens(const Vocabulary& v) {
  std::vector<bool> usable(v.tokens.size());
  for (size_t i = 0; i < usable.size(); ++i) {
    TokenType type = type_of(v, i);
    usable[i] = type == TokenType::kNormal || type == TokenType::kUserDefined || type == TokenType::kUnused;
  }
  return usable;
}

Status build_sentence_piece(Pipeline& p) {
  const Vocabulary& v = p.vocab;
  ASSIGN_OR_RETURN(p.model,
                   BpeModel::build_from_scores(v.tokens, p.map, v.scores, usable_tokens(v), character_options(v)));
  build_space_marks(p);
  return {};
}

Status build_unigram(Pipeline& p) {
  const Vocabulary& v = p.vocab;
  if (v.scores.empty()) return invalid("a unigram vocabulary has no scores", "tokenizer.ggml.scores");
  UnigramOptions options;
  options.byte_fallback = true;
  options.unknown = raw(v.unknown);
  std::vector<double> scores(v.scores.begin(), v.scores.end());
  ASSIGN_OR_RETURN(p.model, UnigramModel::build(v.tokens, scores, usable_tokens(v), options));
  build_space_marks(p);
  return {};
}

// All tokens stand apart but the continuing ones, special ones too; marked ones are spelled back first.
void build_word_piece_decoding(Pipeline& p, bool marked) {
  const Vocabulary& v = p.vocab;
  const DecoderStep step = {.kind = DecoderStep::Kind::kWordPiece, .pattern = "##", .clean_up = true};
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    const std::string& token = v.tokens[i];
    const TokenType type = type_of(v, i);
    const bool hidden = type == TokenType::kControl || type == TokenType::kUnknown;
    const bool bracketed = token.size() > 2 && token.front() == '[' && token.back() == ']';
    std::string spelled = token;
    if (marked && token.starts_with(kSpaceMark) && token.size() > kSpaceMark.size()) {
      spelled.erase(0, kSpaceMark.size());
    } else if (marked && !hidden && !bracketed) {
      spelled.insert(0, "##");
    }
    p.decoding.add(spelled, {&step, 1}, hidden);
  }
  p.decoding.set_strips_leading_space(true);
}

Status build_word_piece(Pipeline& p) {
  const Vocabulary& v = p.vocab;
  // Converters mark the begin of words with U+2581 and drop the ##; older files keep the original spelling.
  bool marked =
      std::any_of(v.tokens.begin(), v.tokens.end(), [](const std::string& t) { return t.starts_with(kSpaceMark); });
  WordPieceOptions options;
  options.first_prefix = marked ? kSpaceMark : "";
  options.continuing_prefix = marked ? "" : "##";
  options.unknown = raw(v.unknown);
  p.model = std::make_unique<WordPieceModel>(v.tokens, p.map, options);
  // A vocabulary without a capital letter is an uncased one.
  bool cased = false;
  for (size_t i = 0; i < v.tokens.size() && !cased; ++i) {
    const std::string& t = v.tokens[i];
    bool bracketed = t.size() > 2 && t.front() == '[' && t.back() == ']';
    cased = !bracketed && type_of(v, i) == TokenType::kNormal &&
            std::any_of(t.begin(), t.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  }
  p.normalizer =
      Normalizer({{.kind = Kind::kBert, .clean = true, .chinese = true, .strip_accents = !cased, .lower = !cased}});
  p.pre_tokenizer = PreTokenizer(
      {{.kind = PreTokenizerStep::Kind::kCharacters, .traits = unicode::kSpace, .behavior = SplitBehavior::kRemoved},
       {.kind = PreTokenizerStep::Kind::kCharacters,
        .traits = unicode::kPunctuation,
        .behavior = SplitBehavior::kIsolated}},
      false);
  build_word_piece_decoding(p, marked);
  return {};
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_vocabulary(Vocabulary vocabulary) {
  TRY(check(vocabulary));
  auto p = std::make_shared<Pipeline>();
  p->vocab = std::move(vocabulary);
  const Vocabulary& v = p->vocab;
  ASSIGN_OR_RETURN(p->map, TokenMap::build(v.tokens));
  TRY(build_added(*p));
  switch (v.model) {
    case VocabularyModel::kBpe:
      TRY(build_bpe(*p));
      break;
    case VocabularyModel::kSentencePieceBpe:
      TRY(build_sentence_piece(*p));
      break;
    case VocabularyModel::kUnigram:
      TRY(build_unigram(*p));
      break;
    case VocabularyModel::kWordPiece:
      TRY(build_word_piece(*p));
      break;
  }
  bool word_piece = v.model == VocabularyModel::kWordPiece;
  if ((v.add_bos || word_piece) && v.bos != TokenId::kNone) p->around.push_back(v.bos);
  p->around.push_back(Pipeline::kText);
  if (word_piece && v.separator != TokenId::kNone) p->around.push_back(v.separator);
  if (v.add_eos && v.eos != TokenId::kNone && !word_piece) p->around.push_back(v.eos);
  return std::shared_ptr<const Tokenizer>(std::move(p));
}

}  // namespace ibid
