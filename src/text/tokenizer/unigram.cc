#include "text/tokenizer/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/utf8.h"

namespace ibid {

Result<std::unique_ptr<UnigramModel>> UnigramModel::build(const std::vector<std::string>& tokens,
                                                          std::span<const double> scores,
                                                          const std::vector<bool>& usable,
                                                          const UnigramOptions& options) {
  auto model = std::make_unique<UnigramModel>();
  model->options_ = options;
  model->scores_.assign(scores.begin(), scores.end());
  model->scores_.resize(tokens.size(), 0.0);
  model->byte_ids_.fill(-1);
  std::vector<ByteTrie::Entry> searched;
  searched.reserve(tokens.size());
  double worst = std::numeric_limits<double>::infinity();
  for (size_t id = 0; id < tokens.size(); ++id) {
    double score = model->scores_[id];
    if (!std::isfinite(score)) {
      return invalid("the score of token " + std::to_string(id) + " is not a finite number", "scores");
    }
    const std::string& token = tokens[id];
    worst = std::min(worst, score);
    if (token.size() == 6 && token.starts_with("<0x") && token[5] == '>') {
      constexpr std::string_view kDigits = "0123456789ABCDEF";
      size_t high = kDigits.find(token[3]), low = kDigits.find(token[4]);
      if (high != kDigits.npos && low != kDigits.npos) model->byte_ids_[high * 16 + low] = static_cast<int32_t>(id);
    }
    if (!usable[id] || token.empty() || token.size() > kMaxTokenBytes) continue;
    searched.push_back({token, static_cast<int32_t>(id)});
  }
  if (!model->trie_.insert_all(searched)) {
    return unsupported("the vocabulary's tokens are too many bytes together to be searched");
  }
  model->unknown_score_ = worst - 10.0;
  if (options.unknown >= 0) model->unknown_spelling_ = tokens[static_cast<size_t>(options.unknown)];
  return model;
}

void UnigramModel::append_unknown(std::string_view piece, std::vector<TokenId>& out) const {
  bool bytes =
      options_.byte_fallback && piece != unknown_spelling_ &&
      std::all_of(piece.begin(), piece.end(), [this](char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; });
  if (bytes) {
    for (char c : piece) out.push_back(static_cast<TokenId>(byte_ids_[static_cast<unsigned char>(c)]));
  } else if (options_.unknown >= 0) {
    out.push_back(static_cast<TokenId>(options_.unknown));
  }
}

void UnigramModel::encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& out) const {
  if (word.size() > WordCache::kMaxWordBytes) return encode_uncached(word, scratch, out);
  WordCache::Entry& entry = scratch.cache.entry_of(word);
  if (WordCache::holds(entry, word)) {
    out.insert(out.end(), entry.ids, entry.ids + entry.n_ids);
    return;
  }
  size_t before = out.size();
  encode_uncached(word, scratch, out);
  WordCache::store(entry, word, out.data() + before, out.size() - before);
}

void UnigramModel::encode_uncached(std::string_view word, EncodeScratch& s, std::vector<TokenId>& out) const {
  constexpr int32_t kUnreached = -1;
  const size_t n = word.size();
  s.best_score.assign(n + 1, 0.0);
  s.best_begin.assign(n + 1, kUnreached);
  s.best_id.assign(n + 1, -1);
  s.best_begin[0] = 0;
  auto sum = [this](double a, double b) {
    return options_.single_precision ? static_cast<double>(static_cast<float>(a) + static_cast<float>(b)) : a + b;
  };
  auto offer = [&](size_t begin, size_t end, double score, int32_t id) {
    double total = sum(s.best_score[begin], score);
    if (s.best_begin[end] != kUnreached && total <= s.best_score[end]) return;
    s.best_score[end] = total;
    s.best_begin[end] = static_cast<int32_t>(begin);
    s.best_id[end] = id;
  };
  for (size_t begin = 0; begin < n;) {
    size_t len = utf8::decode(word.data() + begin, word.data() + n).len;
    bool has_single = false;
    trie_.each_prefix(word.substr(begin), [&](int32_t id, size_t token_len) {
      offer(begin, begin + token_len, scores_[static_cast<size_t>(id)], id);
      has_single |= token_len == len;
    });
    if (!has_single) offer(begin, begin + len, unknown_score_, -1);
    begin += len;
  }
  // Back from the end; neighbouring unknown characters are one piece.
  std::vector<int32_t>& ends = s.unmerged;
  ends.clear();
  for (size_t end = n; end > 0; end = static_cast<size_t>(s.best_begin[end])) ends.push_back(static_cast<int32_t>(end));
  size_t unknown_begin = n;
  auto close_unknown = [&](size_t at) {
    if (unknown_begin < at) append_unknown(word.substr(unknown_begin, at - unknown_begin), out);
    unknown_begin = n;
  };
  for (size_t k = ends.size(); k-- > 0;) {
    auto end = static_cast<size_t>(ends[k]);
    auto begin = static_cast<size_t>(s.best_begin[end]);
    if (s.best_id[end] < 0 || s.best_id[end] == options_.unknown) {  // spelled or not
      unknown_begin = std::min(unknown_begin, begin);
      continue;
    }
    close_unknown(begin);
    out.push_back(static_cast<TokenId>(s.best_id[end]));
  }
  close_unknown(n);
}

}  // namespace ibid
