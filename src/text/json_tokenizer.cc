// Tokenizer::from_json: the parts of a Hugging Face tokenizer.json put together as its library puts them together.
#include <algorithm>
#include <cmath>
#include <optional>

#include "text/bpe_model.h"
#include "text/end_of_generation.h"
#include "text/json_cursor.h"
#include "text/json_parts.h"
#include "text/pipeline.h"
#include "text/unigram.h"
#include "text/word_piece.h"

namespace ibid {
namespace {

constexpr size_t kMaxJsonBytes = size_t{1} << 30;

std::string shown(std::string_view s) {
  constexpr size_t kMost = 40;
  return '"' + (s.size() > kMost ? std::string(s.substr(0, kMost)) + "..." : std::string(s)) + '"';
}

struct Slices {
  std::string_view added_tokens, normalizer, pre_tokenizer, post_processor, decoder, model;
};

struct ModelSlices {
  std::string type, unknown, prefix, suffix;
  std::optional<int64_t> unknown_id, max_characters;
  std::string_view vocab, merges;
  bool fuse_unknown = false, byte_fallback = false, ignore_merges = false;
};

Error syntax(const JsonCursor& cursor, std::string_view where) {
  Error e = cursor.error();
  return invalid("tokenizer.json, " + std::string(where) + ": " + e.message, std::string(where));
}

Result<Slices> read_top(std::string_view json) {
  Slices s;
  JsonCursor cursor(json);
  std::string key;
  cursor.begin_object();
  while (cursor.next_key(key)) {
    std::string_view value;
    if (!cursor.skip(&value)) break;
    if (key == "added_tokens") s.added_tokens = value;
    if (key == "normalizer") s.normalizer = value;
    if (key == "pre_tokenizer") s.pre_tokenizer = value;
    if (key == "post_processor") s.post_processor = value;
    if (key == "decoder") s.decoder = value;
    if (key == "model") s.model = value;
  }
  if (cursor.failed() || !cursor.at_end()) {
    if (!cursor.failed()) cursor.fail("the end of the file");
    return syntax(cursor, "file");
  }
  if (s.model.empty()) return invalid("tokenizer.json has no \"model\"; it is no tokenizer", "model");
  return s;
}

Result<ModelSlices> read_model(std::string_view json) {
  ModelSlices m;
  JsonCursor c(json);
  std::string key;
  auto text = [&](std::string& out) { c.peek() == 'n' ? c.skip() : c.read_string(out); };
  auto flag = [&](bool& out) { c.peek() == 'n' ? c.skip() : c.read_bool(out); };
  auto number = [&](std::optional<int64_t>& out) {
    int64_t value = 0;
    if (c.peek() == 'n' ? !c.skip() : !c.read_int(value)) return;
    out = value;
  };
  double dropout = 0.0;
  c.begin_object();
  while (c.next_key(key)) {
    if (key == "type")
      text(m.type);
    else if (key == "unk_token")
      text(m.unknown);
    else if (key == "continuing_subword_prefix")
      text(m.prefix);
    else if (key == "end_of_word_suffix")
      text(m.suffix);
    else if (key == "unk_id" && c.peek() != 'n')
      number(m.unknown_id);
    else if (key == "max_input_chars_per_word")
      number(m.max_characters);
    else if (key == "fuse_unk")
      flag(m.fuse_unknown);
    else if (key == "byte_fallback")
      flag(m.byte_fallback);
    else if (key == "ignore_merges")
      flag(m.ignore_merges);
    else if (key == "dropout" && c.peek() != 'n')
      c.read_number(dropout);
    else if (key == "vocab")
      c.skip(&m.vocab);
    else if (key == "merges")
      c.skip(&m.merges);
    else
      c.skip();
    if (c.failed()) break;
  }
  if (c.failed()) return syntax(c, "model");
  if (dropout != 0.0) {
    return unsupported("the BPE model has a dropout; its ids would be random, and ours are not", "model.dropout");
  }
  if (m.vocab.empty()) return invalid("the model of tokenizer.json has no \"vocab\"", "model.vocab");
  if (m.type.empty()) {
    // Older files leave it to the keys.
    m.type = !m.merges.empty() ? "BPE" : m.vocab[0] == '[' ? "Unigram" : m.max_characters ? "WordPiece" : "WordLevel";
  }
  return m;
}

// Ids may leave holes, but not make a table that is mostly holes.
Status place(std::vector<std::string>& tokens, std::string token, int64_t id, size_t n_json_bytes) {
  if (id < 0 || id > static_cast<int64_t>(n_json_bytes / 4 + 1024)) {
    return invalid("the token " + shown(token) + " has the id " + std::to_string(id) +
                       ", which is negative or far beyond what the file can hold",
                   "model.vocab");
  }
  auto i = static_cast<size_t>(id);
  if (i >= tokens.size()) {
    tokens.reserve(std::max(i + 1, tokens.capacity() < i + 1 ? tokens.capacity() * 2 : 0));
    tokens.resize(i + 1);
  }
  if (!tokens[i].empty() && tokens[i] != token) {
    return invalid(
        "the tokens " + shown(tokens[i]) + " and " + shown(token) + " have the same id " + std::to_string(id),
        "model.vocab");
  }
  tokens[i] = std::move(token);
  return {};
}

Status read_vocab(std::string_view json, std::vector<std::string>& tokens) {
  JsonCursor c(json);
  std::string key;
  int64_t id = 0;
  tokens.reserve(json.size() / 20);
  c.begin_object();
  while (c.next_key(key)) {
    if (!c.read_int(id)) break;
    TRY(place(tokens, key, id, json.size()));
  }
  if (c.failed()) return syntax(c, "model.vocab");
  return {};
}

Status read_scored_vocab(std::string_view json, std::vector<std::string>& tokens, std::vector<double>& scores) {
  JsonCursor c(json);
  std::string token;
  double score = 0.0;
  c.begin_array();
  while (c.next_element()) {
    if (!c.begin_array() || !c.next_element() || !c.read_string(token) || !c.next_element() || !c.read_score(score)) {
      c.fail("a token and its score");
      break;
    }
    if (c.next_element()) c.fail("']'");
    tokens.push_back(token);
    scores.push_back(score);
  }
  if (c.failed()) return syntax(c, "model.vocab");
  return {};
}

Status read_merges(std::string_view json, const TokenMap& map, const std::string& prefix, std::vector<Merge>& merges) {
  JsonCursor c(json);
  std::string left, right, line;
  merges.reserve(json.size() / 16);
  c.begin_array();
  while (c.next_element()) {
    size_t rank = merges.size();
    auto bad = [&](const char* why) {
      return invalid(
          "merge " + std::to_string(rank) + " of tokenizer.json " + why + ": " + shown(left) + " and " + shown(right),
          "model.merges");
    };
    if (c.peek() == '[') {
      c.begin_array();
      if (!c.next_element() || !c.read_string(left) || !c.next_element() || !c.read_string(right)) {
        c.fail("two tokens");
        break;
      }
      if (c.next_element()) c.fail("']' behind two tokens");
    } else {
      if (!c.read_string(line)) break;
      size_t space = line.find(' ');
      left = line.substr(0, space);
      right = space == line.npos ? "" : line.substr(space + 1);
      if (right.empty() || left.empty() || right.find(' ') != right.npos)
        return bad("is not two tokens with a space between");
    }
    if (c.failed()) break;
    std::string_view tail = right;
    if (!prefix.empty() && tail.starts_with(prefix)) tail.remove_prefix(prefix.size());
    uint64_t left_hash = TokenMap::hash(left), both_hash = left_hash;
    for (char ch : tail) both_hash = TokenMap::extend(both_hash, ch);
    int32_t left_id = map.find(left, left_hash), right_id = map.find(right);
    if (left_id < 0 || right_id < 0) return bad("names a token that is not in the vocabulary");
    int32_t both = map.find_joined(left, tail, both_hash);
    if (both < 0) return bad("makes a token that is not in the vocabulary");
    merges.push_back({left_id, right_id, static_cast<int32_t>(rank), both});
  }
  if (c.failed()) return syntax(c, "model.merges");
  return {};
}

Status read_added(std::string_view json, size_t n_json_bytes, std::vector<AddedToken>& added) {
  if (json.empty()) return {};
  JsonCursor c(json);
  std::string key;
  c.begin_array();
  while (c.next_element()) {
    AddedToken t;
    int64_t id = -1;
    t.normalized = true;
    c.begin_object();
    while (c.next_key(key)) {
      if (key == "id")
        c.read_int(id);
      else if (key == "content")
        c.read_string(t.content);
      else if (key == "single_word")
        c.read_bool(t.single_word);
      else if (key == "lstrip")
        c.read_bool(t.lstrip);
      else if (key == "rstrip")
        c.read_bool(t.rstrip);
      else if (key == "normalized")
        c.read_bool(t.normalized);
      else if (key == "special")
        c.read_bool(t.special);
      else
        c.skip();
      if (c.failed()) break;
    }
    if (c.failed()) break;
    if (t.content.empty()) return invalid("an added token has no content", "added_tokens");
    if (id < 0 || id > static_cast<int64_t>(n_json_bytes / 4 + 1024)) {
      return invalid("the added token " + shown(t.content) + " has the id " + std::to_string(id) +
                         ", which is negative or far beyond what the file can hold",
                     "added_tokens");
    }
    t.id = static_cast<TokenId>(id);
    added.push_back(std::move(t));
    if (added.size() > AddedTokens::kMaxTokens) {
      return unsupported("tokenizer.json has more than " + std::to_string(AddedTokens::kMaxTokens) + " added tokens",
                         "added_tokens");
    }
  }
  if (c.failed()) return syntax(c, "added_tokens");
  return {};
}

bool is_byte_token(std::string_view t) {
  return t.size() == 6 && t.starts_with("<0x") && t[5] == '>' && std::isxdigit(static_cast<unsigned char>(t[3])) &&
         std::isxdigit(static_cast<unsigned char>(t[4]));
}

Result<std::unique_ptr<WordModel>> build_model(Pipeline& p, const ModelSlices& m, const std::vector<double>& scores,
                                               size_t n_model_tokens, bool byte_level) {
  const std::vector<std::string>& tokens = p.vocab.tokens;
  int32_t unknown = m.unknown.empty() ? -1 : p.map.find(m.unknown);
  if (!m.unknown.empty() && unknown < 0) {
    return invalid("the unknown token " + shown(m.unknown) + " is not in the vocabulary", "model.unk_token");
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
    if (!m.merges.empty()) TRY(read_merges(m.merges, p.map, m.prefix, merges));
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
  return unsupported("the model " + shown(m.type) + " is not supported; BPE, Unigram, WordPiece and WordLevel are",
                     "model.type");
}

Status build_added(Pipeline& p, std::vector<AddedToken> added, EncodeScratch& scratch) {
  std::vector<AddedToken> plain, normalized;
  for (AddedToken& t : added) {
    if (t.normalized) {
      t.content = p.normalizer.normalize(t.content, scratch);
      normalized.push_back(std::move(t));
    } else {
      plain.push_back(std::move(t));
    }
  }
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
  ASSIGN_OR_RETURN(ModelSlices m, read_model(slices.model));
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
  // An added token that the model knows is the model's, whatever id the file gives it; so the reference has it.
  ASSIGN_OR_RETURN(p->map, TokenMap::build(v.tokens));
  for (AddedToken& t : added) {
    if (int32_t known = p->map.find(t.content); known >= 0) {
      t.id = static_cast<TokenId>(known);
      continue;
    }
    TRY(place(v.tokens, t.content, raw(t.id), json.size()));
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
  if (m.unknown_id) v.unknown = static_cast<TokenId>(*m.unknown_id);

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
  p->decoding.reserve(v.tokens.size(), json.size() / 4);
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    bool hidden = v.types[i] == TokenType::kControl;
    bool literal = hidden || v.types[i] == TokenType::kUserDefined;
    bool words = std::any_of(decoder.steps.begin(), decoder.steps.end(), [](const DecoderStep& s) {
      return s.kind == DecoderStep::Kind::kWordPiece || s.kind == DecoderStep::Kind::kSpaced;
    });
    p->decoding.add(literal && !words ? v.tokens[i] : Decoding::bytes_of(v.tokens[i], decoder.steps), hidden);
  }
  p->decoding.set_strips_leading_space(decoder.strips_leading_space);
  p->decoding.set_strips_trailing_space(decoder.strips_trailing_space);

  EncodeScratch scratch;
  TRY(build_added(*p, std::move(added), scratch));
  name_special_ids(v, p->map, config, p->around);
  return std::shared_ptr<const Tokenizer>(std::move(p));
}

}  // namespace ibid
