#include "text/tokenizer/word_piece.h"

#include <algorithm>

#include "base/utf8.h"

namespace ibid {

WordPieceModel::WordPieceModel(const std::vector<std::string>& tokens, const TokenMap& map, WordPieceOptions options)
    : map_(&map), options_(std::move(options)) {
  for (const std::string& token : tokens) longest_ = std::max(longest_, token.size());
  longest_ = std::min(longest_, kMaxTokenBytes + options_.first_prefix.size() + options_.continuing_prefix.size());
}

void WordPieceModel::encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& out) const {
  WordCache::Entry* entry = nullptr;
  if (word.size() <= WordCache::kMaxWordBytes) {
    entry = &scratch.cache.entry_of(word);
    if (WordCache::holds(*entry, word)) {
      out.insert(out.end(), entry->ids, entry->ids + entry->n_ids);
      return;
    }
  }
  const size_t before = out.size();
  bool spelled = utf8::count(word) <= options_.max_characters;
  std::string& piece = scratch.spelled;
  for (size_t begin = 0; spelled && begin < word.size();) {
    const std::string& prefix = begin == 0 ? options_.first_prefix : options_.continuing_prefix;
    size_t room = longest_ > prefix.size() ? longest_ - prefix.size() : 0;
    size_t len = std::min(word.size() - begin, room);
    // Where words are marked and continuing pieces are not, a continuing piece that begins with the mark would be found
    // as the word after it; only the mark alone is a piece.
    const std::string& mark = options_.first_prefix;
    if (begin > 0 && prefix.empty() && !mark.empty() && word.substr(begin).starts_with(mark)) {
      len = std::min(len, mark.size());
    }
    piece.assign(prefix).append(word.substr(begin, len));
    // One hash per prefix: the longest known one is the last that is found.
    uint64_t h = TokenMap::hash(prefix);
    int32_t found = -1;
    size_t found_len = 0;
    for (size_t i = 0; i < len; ++i) {
      h = TokenMap::extend(h, piece[prefix.size() + i]);
      if (begin + i + 1 < word.size() && utf8::goes_on(word[begin + i + 1])) continue;
      int32_t id = map_->find(std::string_view(piece).substr(0, prefix.size() + i + 1), h);
      if (id >= 0) found = id, found_len = i + 1;
    }
    if (found < 0) {
      spelled = false;
    } else {
      out.push_back(static_cast<TokenId>(found));
      begin += found_len;
    }
  }
  if (!spelled) {
    out.resize(before);
    if (options_.unknown >= 0) out.push_back(static_cast<TokenId>(options_.unknown));
  }
  if (entry) WordCache::store(*entry, word, out.data() + before, out.size() - before);
}

void WordLevelModel::encode_word(std::string_view word, EncodeScratch&, std::vector<TokenId>& out) const {
  int32_t id = map_->find(word);
  if (id < 0) id = unknown_;
  if (id >= 0) out.push_back(static_cast<TokenId>(id));
}

}  // namespace ibid
