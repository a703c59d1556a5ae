#include "text/tokenizer/added_tokens.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/tokenizer/unicode.h"

namespace ibid {
namespace {

// The code point that ends at `end`; text is not empty.
utf8::CodePoint last_of(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < 4 && utf8::goes_on(text[begin])) --begin;
  utf8::CodePoint c = utf8::decode(text.data() + begin, text.data() + text.size());
  if (begin + c.len != text.size()) return {utf8::kReplacement, 1, false};
  return c;
}

}  // namespace

Status AddedTokens::check(std::span<const AddedToken> tokens) {
  if (tokens.size() > kMaxTokens) {
    return unsupported("the vocabulary has " + std::to_string(tokens.size()) + " special or added tokens; at most " +
                       std::to_string(kMaxTokens) + " are read");
  }
  size_t n_bytes = 0;
  for (const AddedToken& t : tokens) {
    if (t.content.size() > kMaxTokenBytes) {
      return unsupported("the added token with id " + std::to_string(raw(t.id)) + " is " +
                         std::to_string(t.content.size()) + " bytes long; at most " + std::to_string(kMaxTokenBytes) +
                         " are read");
    }
    n_bytes += t.content.size();
  }
  if (n_bytes > size_t{1} << 20) {
    return unsupported("the added tokens have " + std::to_string(n_bytes) +
                       " bytes together; at most 1048576 are read");
  }
  return {};
}

Result<AddedTokens> AddedTokens::build(std::vector<AddedToken> tokens) {
  AddedTokens added;
  std::erase_if(tokens, [](const AddedToken& t) { return t.content.empty(); });
  TRY(check(tokens));
  added.tokens_ = std::move(tokens);
  for (size_t k = 0; k < added.tokens_.size(); ++k) {
    added.trie_.insert(added.tokens_[k].content, static_cast<int32_t>(k));
    added.begins_[static_cast<unsigned char>(added.tokens_[k].content[0])] = true;
  }
  return added;
}

bool AddedTokens::next(std::string_view text, size_t from, Match& match) const {
  if (tokens_.empty()) return false;
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<unsigned char>(text[begin])]) continue;
    int32_t found = -1;
    size_t found_end = 0;
    trie_.each_prefix(text.substr(begin), [&](int32_t token, size_t len) { found = token, found_end = begin + len; });
    if (found >= 0) {
      match = {begin, found_end, begin, found_end, &tokens_[static_cast<size_t>(found)]};
      return true;
    }
  }
  return false;
}

bool AddedTokens::fits(std::string_view text, const Match& m) {
  if (!m.token->single_word) return true;
  bool word_before = m.begin > 0 && unicode::has(last_of(text.substr(0, m.begin)).value, unicode::kWord);
  bool word_after = m.end < text.size() &&
                    unicode::has(utf8::decode(text.data() + m.end, text.data() + text.size()).value, unicode::kWord);
  return !word_before && !word_after;
}

void AddedTokens::take_space(std::string_view text, size_t from, Match& m) {
  if (m.token->lstrip) {
    while (m.begin > from) {
      utf8::CodePoint c = last_of(text.substr(0, m.begin));
      if (!unicode::has(c.value, unicode::kSpace)) break;
      m.begin = std::max(from, m.begin - c.len);
    }
  }
  if (m.token->rstrip) {
    while (m.end < text.size()) {
      utf8::CodePoint c = utf8::decode(text.data() + m.end, text.data() + text.size());
      if (!unicode::has(c.value, unicode::kSpace)) break;
      m.end += c.len;
    }
  }
}

}  // namespace ibid
