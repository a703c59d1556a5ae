#include "text/tokenizer/bpe_model.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <numeric>

#include "base/utf8.h"
#include "text/tokenizer/byte_alphabet.h"

namespace ibid {
namespace {

size_t join_hash(char32_t left, char32_t right) {
  uint64_t key = (static_cast<uint64_t>(left) << 21 | right) * 0x9E3779B97F4A7C15u;
  return static_cast<size_t>(key >> 40);
}

}  // namespace

void BpeModel::find_bytes() {
  for (size_t b = 0; b < 256; ++b) {
    char fallback[8];
    std::snprintf(fallback, sizeof fallback, "<0x%02X>", static_cast<unsigned>(b));
    byte_ids_[b] = map_->find(options_.byte_level ? std::string_view(byte_alphabet::spellings()[b]) : fallback);
  }
}

// Single characters of the basic plane are in a table; others are looked up in the map.
void BpeModel::find_characters() {
  basic_plane_.assign(0x10000, -1);
  for (size_t id = 0; id < tokens_->size(); ++id) {
    const std::string& token = (*tokens_)[id];
    if (token.empty() || token.size() > 3) continue;
    utf8::CodePoint c = utf8::decode(token.data(), token.data() + token.size());
    if (c.valid && c.len == token.size()) basic_plane_[c.value] = static_cast<int32_t>(id);
  }
}

void BpeModel::allow_join(std::string_view s) {
  char32_t before = 0;
  for (const char *p = s.data(), *end = p + s.size(); p < end;) {
    utf8::CodePoint c = utf8::decode(p, end);
    if (p != s.data()) {
      size_t h = join_hash(before, c.value) & (joins_.size() * 64 - 1);
      joins_[h >> 6] |= uint64_t{1} << (h & 63);
    }
    before = c.value;
    p += c.len;
  }
}

bool BpeModel::may_join(char32_t left, char32_t right) const {
  size_t h = join_hash(left, right) & (joins_.size() * 64 - 1);
  return (joins_[h >> 6] >> (h & 63) & 1) != 0;
}

Result<std::unique_ptr<BpeModel>> BpeModel::build(const std::vector<std::string>& tokens, const TokenMap& map,
                                                  std::span<const Merge> merges, const BpeOptions& options) {
  std::unique_ptr<BpeModel> model(new BpeModel(tokens, map, options));
  model->find_bytes();
  ASSIGN_OR_RETURN(model->merger_, BpeMerger::build(merges));
  if (options.byte_level) return model;
  bool affixes = !options.continuing_prefix.empty() || !options.word_suffix.empty();
  if (affixes) return model;
  model->find_characters();
  size_t n_bits = std::clamp<size_t>(std::bit_ceil(tokens.size() * 16), size_t{1} << 16, size_t{1} << 21);
  model->joins_.assign(n_bits / 64, 0);
  for (const Merge& m : merges) model->allow_join(tokens[static_cast<size_t>(m.result)]);
  return model;
}

Result<std::unique_ptr<BpeModel>> BpeModel::build_from_scores(const std::vector<std::string>& tokens,
                                                              const TokenMap& map, std::span<const float> scores,
                                                              const std::vector<bool>& usable,
                                                              const BpeOptions& options) {
  std::unique_ptr<BpeModel> model(new BpeModel(tokens, map, options));
  model->find_bytes();
  model->find_characters();
  size_t n_bits = std::clamp<size_t>(std::bit_ceil(tokens.size() * 16), size_t{1} << 16, size_t{1} << 21);
  model->joins_.assign(n_bits / 64, 0);

  std::vector<int32_t> by_score(tokens.size());
  std::iota(by_score.begin(), by_score.end(), 0);
  auto score = [&](int32_t id) { return scores.empty() ? 0.0f : scores[static_cast<size_t>(id)]; };
  auto better = [&](int32_t a, int32_t b) { return score(a) > score(b); };
  if (!std::is_sorted(by_score.begin(), by_score.end(), better)) {
    std::stable_sort(by_score.begin(), by_score.end(), better);
  }
  std::vector<int32_t> rank_of(tokens.size());
  int32_t rank = 0;
  for (size_t i = 0; i < by_score.size(); ++i) {
    if (i > 0 && score(by_score[i]) != score(by_score[i - 1])) ++rank;
    rank_of[static_cast<size_t>(by_score[i])] = rank;
  }

  // A character that is no usable token gets a symbol of its own the first time it stands at a token's edge.
  auto edge_symbol = [&](std::string_view character) -> int32_t {
    utf8::CodePoint c = utf8::decode(character.data(), character.data() + character.size());
    int32_t known = model->symbol_of(c.value, character);
    if (known >= 0) return known;
    auto symbol = static_cast<int32_t>(tokens.size() + model->extra_characters_.size());
    model->extra_characters_.push_back(c.value);
    if (c.value < 0x10000) {
      model->basic_plane_[c.value] = symbol;
    } else {
      model->extra_astral_.emplace(c.value, symbol);
    }
    return symbol;
  };

  std::vector<Merge> merges;
  merges.reserve(tokens.size() * 2);
  // All ways to cut a token in two; look-ups of many wait for memory together.
  struct Cut {
    int32_t id;
    uint32_t at;
    bool first, last;  // after the first character, before the last one
    uint64_t left, right;
  };
  std::vector<Cut> cuts;
  auto find_merges = [&] {
    for (const Cut& cut : cuts) {
      std::string_view token = tokens[static_cast<size_t>(cut.id)];
      std::string_view head = token.substr(0, cut.at), tail = token.substr(cut.at);
      int32_t left = cut.first ? edge_symbol(head) : map.find(head, cut.left);
      if (left < 0 || (!cut.first && !usable[static_cast<size_t>(left)])) continue;
      int32_t right = cut.last ? edge_symbol(tail) : map.find(tail, cut.right);
      if (right < 0 || (!cut.last && !usable[static_cast<size_t>(right)])) continue;
      merges.push_back({left, right, rank_of[static_cast<size_t>(cut.id)], cut.id});
    }
    cuts.clear();
  };
  constexpr size_t kAtOnce = 128;
  const size_t most = 16 * tokens.size() + (size_t{1} << 20);  // vocabularies in use have one to three of each token
  std::vector<uint64_t> prefix, power = {1};
  for (size_t id = 0; id < tokens.size(); ++id) {
    std::string_view token = tokens[id];
    if (!usable[id] || token.size() < 2 || token.size() > kMaxMergedBytes || !utf8::is_valid(token)) continue;
    size_t first = utf8::len_of(token[0]);
    if (first == token.size()) continue;
    model->allow_join(token);
    prefix.assign(1, 0);
    for (char c : token) prefix.push_back(TokenMap::extend(prefix.back(), c));
    while (power.size() <= token.size()) power.push_back(power.back() * TokenMap::kBase);
    for (size_t at = first; at < token.size();) {
      size_t next = at + utf8::len_of(token[at]);
      uint64_t tail = prefix.back() - prefix[at] * power[token.size() - at];
      cuts.push_back(
          {static_cast<int32_t>(id), static_cast<uint32_t>(at), at == first, next == token.size(), prefix[at], tail});
      map.prefetch_slot(prefix[at]);
      map.prefetch_slot(tail);
      at = next;
    }
    if (cuts.size() >= kAtOnce) find_merges();
    if (merges.size() > most) {
      return unsupported("the " + std::to_string(tokens.size()) + " tokens of the vocabulary can be cut in more than " +
                         std::to_string(most) + " ways into two others; that is refused");
    }
  }
  find_merges();
  ASSIGN_OR_RETURN(model->merger_, BpeMerger::build(merges));
  return model;
}

int32_t BpeModel::symbol_of(char32_t c, std::string_view bytes) const {
  if (c < 0x10000) return basic_plane_[c];
  int32_t id = map_->find(bytes);
  if (id >= 0 || extra_astral_.empty()) return id;
  auto found = extra_astral_.find(c);
  return found != extra_astral_.end() ? found->second : -1;
}

void BpeModel::append_unknown(std::string_view character, std::vector<int32_t>& symbols) const {
  if (options_.byte_fallback) {
    bool all = std::all_of(character.begin(), character.end(),
                           [this](char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; });
    if (all) {
      for (char c : character) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
      return;
    }
  }
  if (options_.unknown < 0) return;
  if (options_.fuse_unknown && !symbols.empty() && symbols.back() == options_.unknown) return;
  symbols.push_back(options_.unknown);
}

void BpeModel::begin_with_bytes(std::string_view word, std::vector<int32_t>& symbols) const {
  for (char c : word) {
    int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    if (id >= 0) {
      symbols.push_back(id);
    } else if (options_.unknown >= 0) {
      append_unknown({}, symbols);
    }
  }
}

void BpeModel::begin_with_characters(std::string_view word, std::vector<int32_t>& symbols) const {
  for (const char *p = word.data(), *end = p + word.size(); p < end;) {
    utf8::CodePoint c = utf8::decode(p, end);
    std::string_view bytes(p, c.len);
    int32_t symbol = c.valid ? symbol_of(c.value, bytes) : -1;
    if (symbol >= 0) {
      symbols.push_back(symbol);
    } else {
      append_unknown(bytes, symbols);
    }
    p += c.len;
  }
}

void BpeModel::begin_with_affixes(std::string_view word, EncodeScratch& scratch) const {
  std::string& spelled = scratch.spelled;
  for (const char *p = word.data(), *end = p + word.size(); p < end;) {
    uint32_t len = utf8::decode(p, end).len;
    spelled.assign(p == word.data() ? "" : options_.continuing_prefix);
    spelled.append(p, len);
    if (p + len == end) spelled += options_.word_suffix;
    int32_t id = map_->find(spelled);
    if (id >= 0) {
      scratch.bpe.symbols.push_back(id);
    } else {
      append_unknown(spelled, scratch.bpe.symbols);
    }
    p += len;
  }
}

void BpeModel::encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& out) const {
  if (joins_.empty()) return encode_uncut(word, scratch, out);
  if (options_.ignore_merges) {
    if (int32_t id = map_->find(word); id >= 0) return out.push_back(static_cast<TokenId>(id));
  }
  const size_t first_out = out.size();
  const char* end = word.data() + word.size();
  for (const char* p = word.data(); p < end;) {
    const char* q = p;
    utf8::CodePoint c = utf8::decode(q, end);
    for (q += c.len; q < end; q += c.len) {
      char32_t before = c.value;
      c = utf8::decode(q, end);
      if (!may_join(before, c.value)) break;
    }
    size_t begin = out.size();
    encode_uncut({p, static_cast<size_t>(q - p)}, scratch, out);
    auto unknown = static_cast<TokenId>(options_.unknown);
    if (options_.fuse_unknown && begin > first_out && begin < out.size() && out[begin] == unknown &&
        out[begin - 1] == unknown) {
      out.erase(out.begin() + static_cast<std::ptrdiff_t>(begin));
    }
    p = q;
  }
}

void BpeModel::encode_uncut(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& out) const {
  WordCache::Entry* entry = nullptr;
  if (word.size() <= WordCache::kMaxWordBytes) {
    entry = &scratch.cache.entry_of(word);
    if (WordCache::holds(*entry, word)) {
      out.insert(out.end(), entry->ids, entry->ids + entry->n_ids);
      return;
    }
  }
  const size_t begin = out.size();
  std::vector<int32_t>& symbols = scratch.bpe.symbols;
  symbols.clear();
  int32_t whole = -1;
  if (options_.ignore_merges && joins_.empty()) {
    std::string& spelled = scratch.spelled;
    spelled.clear();
    if (options_.byte_level) byte_alphabet::append_spelled(word, spelled);
    whole = map_->find(options_.byte_level ? std::string_view(spelled) : word);
  }
  if (whole >= 0) {
    symbols.push_back(whole);
  } else {
    if (options_.byte_level) {
      begin_with_bytes(word, symbols);
    } else if (basic_plane_.empty()) {
      begin_with_affixes(word, scratch);
    } else {
      begin_with_characters(word, symbols);
    }
    merger_.merge(scratch.bpe);
  }
  const auto n_tokens = static_cast<int32_t>(tokens_->size());
  for (int32_t symbol : symbols) {
    if (symbol < n_tokens) {
      out.push_back(static_cast<TokenId>(symbol));
      continue;
    }
    // A character that only merges could have made a token.
    std::string bytes;
    utf8::append(extra_characters_[static_cast<size_t>(symbol - n_tokens)], bytes);
    scratch.unmerged.clear();
    append_unknown(bytes, scratch.unmerged);
    for (int32_t id : scratch.unmerged) {
      bool fused = options_.fuse_unknown && id == options_.unknown && out.size() > begin &&
                   out.back() == static_cast<TokenId>(id);
      if (!fused) out.push_back(static_cast<TokenId>(id));
    }
  }
  if (entry) WordCache::store(*entry, word, out.data() + begin, out.size() - begin);
}

}  // namespace ibid
