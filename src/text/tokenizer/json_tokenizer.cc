// Tokenizer::from_json: the parts of a Hugging Face tokenizer.json put together as its library puts them together.
#include <algorithm>
#include <cmath>

#include "base/quoted.h"
#include "text/tokenizer/bpe_model.h"
#include "text/tokenizer/end_of_generation.h"
#include "text/tokenizer/json_parts.h"
#include "text/tokenizer/json_tables.h"
#include "text/tokenizer/pipeline.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/word_piece.h"

namespace ibid {
namespace {

using namespace json_tables;
constexpr size_t kMaxJsonBytes = size_t{1} << 30;
constexpr size_t kMaxAffixBytes = 64;

bool is_byte_token(std::string_view t) {
  return t.size() == 6 && t.starts_with("<0x") && t[5] == '>' && std::isxdigit(static_cast<unsigned char>(t[3])) &&
         std::isxdigit(static_cast<unsigned char>(t[4]));
}

Result<std::unique_ptr<WordModel>> build_model(Pipeline& p, const ModelSlices& m, const std::vector<double>& scores,
                                               size_t n_model_tokens, bool byte_level) {
  const std::vector<std::string>& tokens = p.vocab.tokens;
  int32_t unknown = m.unknown.empty() ? -1 : p.map.find(m.unknown);
  if (!m.unknown.empty() && unknown < 0) {
    return invalid("the unknown token " + in_quotes(m.unknown) + " is not in the vocabulary", "model.unk_token");
  }
  for (auto [affix, key] : {std::pair{&m.prefix, "continuing_subword_prefix"}, {&m.suffix, "end_of_word_suffix"}}) {
    // It is spelled with every character of a text.
    if (affix->size() <= kMaxAffixBytes) continue;
    return unsupported("the model's " + std::string(key) + " has " + std::to_string(affix->size()) +
                           " bytes; at most " + std::to_string(kMaxAffixBytes) + " are read",
                       "model." + std::string(key));
  }
  if (m.type == "BPE") {
    BpeOptions options;
    options.byte_level = byte_level;
    options.byte_fallback = m.byte_fallback;
    options.fuse_unknown = m.fuse_unknown;
    options.ignore_merges = m.ignore_merges;
    options.unknown = unknown;
    options.continuing_prefix = m.prefix;
    options.word_suffix = m.suffix;
    if (byte_level && (!m.prefix.empty() || !m.suffix.empty() || m.byte_fallback)) {
      // The model would see spelled bytes, as characters.
      options.byte_level = false;
    }
    std::vector<Merge> merges;
    if (!m.merges.empty()) {
      ASSIGN_OR_RETURN(merges, read_merges(m.merges, p.map, m.prefix));
    }
    ASSIGN_OR_RETURN(std::unique_ptr<WordModel> model, BpeModel::build(tokens, p.map, merges, options));
    return model;
  }
  if (m.type == "Unigram") {
    UnigramOptions options;
    options.byte_fallback = m.byte_fallback;
    options.single_precision = false;
    if (m.unknown_id && (*m.unknown_id < 0 || *m.unknown_id >= static_cast<int64_t>(n_model_tokens))) {
      return invalid("the unknown id " + std::to_string(*m.unknown_id) + " is outside the vocabulary", "model.unk_id");
    }
    options.unknown = m.unknown_id ? static_cast<int32_t>(*m.unknown_id) : -1;
    std::vector<bool> usable(tokens.size());
    std::fill(usable.begin(), usable.begin() + static_cast<std::ptrdiff_t>(n_model_tokens), true);
    ASSIGN_OR_RETURN(std::unique_ptr<WordModel> model, UnigramModel::build(tokens, scores, usable, options));
    return model;
  }
  if (m.type == "WordPiece") {
    WordPieceOptions options;
    options.continuing_prefix = m.prefix.empty() ? "##" : m.prefix;
    options.unknown = unknown;
    if (m.max_characters) options.max_characters = static_cast<size_t>(std::max<int64_t>(0, *m.max_characters));
    return std::unique_ptr<WordModel>(std::make_unique<WordPieceModel>(tokens, p.map, options));
  }
  if (m.type == "WordLevel") return std::unique_ptr<WordModel>(std::make_unique<WordLevelModel>(p.map, unknown));
  return unsupported("the model " + in_quotes(m.type) + " is not supported; BPE, Unigram, WordPiece and WordLevel are",
                     "model.type");
}

Status build_added(Pipeline& p, std::vector<AddedToken> added, EncodeScratch& scratch) {
  std::vector<AddedToken> plain, normalized;
  for (AddedToken& t : added) (t.normalized ? normalized : plain).push_back(std::move(t));
  // Before an expression of the file sees them, and again as it leaves them.
  TRY(AddedTokens::check(normalized));
  for (AddedToken& t : normalized) t.content = p.normalizer.normalize(t.content, scratch);
  ASSIGN_OR_RETURN(p.raw_added, AddedTokens::build(std::move(plain)));
  ASSIGN_OR_RETURN(p.normalized_added, AddedTokens::build(std::move(normalized)));
  return {};
}

void name_special_ids(Vocabulary& v, const TokenMap& map, const json_parts::Config& config,
                      const std::vector<TokenId>& around) {
  auto id = [&map](const std::string& token) {
    return token.empty() ? TokenId::kNone : static_cast<TokenId>(map.find(token));
  };
  v.bos = id(config.bos);
  v.eos = id(config.eos);
  v.padding = id(config.padding);
  v.separator = id(config.separator);
  if (!config.unknown.empty()) v.unknown = id(config.unknown);
  v.add_bos = !around.empty() && around.front() != TokenId::kNone && around.front() == v.bos;
  v.add_eos = !around.empty() && around.back() != TokenId::kNone && around.back() == v.eos;
  v.chat_template = config.chat_template;
  v.end_of_generation = find_end_of_generation(v);
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(std::string_view json, std::string_view config_json) {
  if (json.size() > kMaxJsonBytes) {
    return unsupported("tokenizer.json has " + std::to_string(json.size()) + " bytes; at most 2^30 are read");
  }
  ASSIGN_OR_RETURN(Slices slices, read_top(json));
  const ModelSlices& m = *slices.model;
  ASSIGN_OR_RETURN(json_parts::Config config, json_parts::read_config(config_json));
  auto p = std::make_shared<Pipeline>();
  Vocabulary& v = p->vocab;

  std::vector<double> scores;
  if (m.vocab[0] == '[') {
    TRY(read_scored_vocab(m.vocab, v.tokens, scores));
  } else {
    TRY(read_vocab(m.vocab, v.tokens));
  }
  if ((m.vocab[0] == '[') != (m.type == "Unigram")) {
    return invalid("the vocabulary of a " + m.type + " model has the form of another kind", "model.vocab");
  }
  size_t n_model_tokens = v.tokens.size();
  std::vector<AddedToken> added;
  TRY(read_added(slices.added_tokens, json.size(), added));
  // An added token that the model has keeps the model's id, whatever id the file gives it, as in the reference.
  ASSIGN_OR_RETURN(p->map, TokenMap::build(v.tokens));
  for (AddedToken& t : added) {
    if (int32_t known = p->map.find(t.content); known >= 0) {
      t.id = static_cast<TokenId>(known);
      continue;
    }
    TRY(place(v.tokens, t.content, raw(t.id), n_model_tokens + added.size()));
    TRY(p->map.insert(raw(t.id)));
  }
  if (v.tokens.empty()) return invalid("the vocabulary of tokenizer.json is empty", "model.vocab");

  v.model = m.type == "Unigram" ? VocabularyModel::kUnigram
            : m.type == "BPE"   ? VocabularyModel::kBpe
                                : VocabularyModel::kWordPiece;
  v.add_space_prefix = false;
  v.types.assign(v.tokens.size(), TokenType::kNormal);
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    if (m.byte_fallback && is_byte_token(v.tokens[i])) v.types[i] = TokenType::kByte;
    if (v.tokens[i].empty()) v.types[i] = TokenType::kUnused;
  }
  for (const AddedToken& t : added) {
    v.types[static_cast<size_t>(raw(t.id))] = t.special ? TokenType::kControl : TokenType::kUserDefined;
  }
  if (!scores.empty()) {
    scores.resize(v.tokens.size(), 0.0);
    v.scores.assign(scores.begin(), scores.end());
  }
  if (!m.unknown.empty()) v.unknown = static_cast<TokenId>(p->map.find(m.unknown));
  if (m.unknown_id && m.type == "Unigram") v.unknown = static_cast<TokenId>(*m.unknown_id);

  if (!slices.normalizer.empty()) {
    ASSIGN_OR_RETURN(std::vector<NormalizerStep> steps, json_parts::read_normalizer(slices.normalizer));
    p->normalizer = Normalizer(std::move(steps));
  }
  bool byte_level = false;
  json_parts::PreTokenizerParts cuts;
  if (!slices.pre_tokenizer.empty()) {
    ASSIGN_OR_RETURN(cuts, json_parts::read_pre_tokenizer(slices.pre_tokenizer));
    byte_level = cuts.byte_level;
  }
  bool bytes_for_model = byte_level && m.type == "BPE" && m.prefix.empty() && m.suffix.empty() && !m.byte_fallback;
  p->pre_tokenizer = PreTokenizer(std::move(cuts.steps), bytes_for_model);
  ASSIGN_OR_RETURN(p->model, build_model(*p, m, scores, n_model_tokens, bytes_for_model));
  p->around = {Pipeline::kText};
  if (!slices.post_processor.empty()) {
    ASSIGN_OR_RETURN(p->around, json_parts::read_post_processor(slices.post_processor, v.tokens.size()));
  }

  ASSIGN_OR_RETURN(json_parts::DecoderParts decoder,
                   json_parts::read_decoder(slices.decoder.empty() ? "null" : slices.decoder));
  bool words = std::any_of(decoder.steps.begin(), decoder.steps.end(), [](const DecoderStep& s) {
    return s.kind == DecoderStep::Kind::kWordPiece || s.kind == DecoderStep::Kind::kSpaced;
  });
  p->decoding.reserve(v.tokens.size(), json.size() / 4);
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    bool hidden = v.types[i] == TokenType::kControl;
    bool literal = hidden || v.types[i] == TokenType::kUserDefined;
    std::span<const DecoderStep> steps = decoder.steps;
    p->decoding.add(v.tokens[i], literal && !words ? steps.first(0) : steps, hidden);
    if (p->decoding.n_bytes() > json.size() * 4 + 4096) {
      return unsupported("the decoder makes more than " + std::to_string(json.size() * 4 + 4096) +
                             " bytes of text of the tokens in a file of " + std::to_string(json.size()) +
                             " bytes; that is refused",
                         "decoder");
    }
  }
  p->decoding.set_strips_leading_space(decoder.strips_leading_space);
  p->decoding.set_strips_trailing_space(decoder.strips_trailing_space);

  EncodeScratch scratch;
  scratch.budget = Pattern::Budget::of_text(json.size());
  TRY(build_added(*p, std::move(added), scratch));
  name_special_ids(v, p->map, config, p->around);
  return std::shared_ptr<const Tokenizer>(std::move(p));
}

}  // namespace ibid
