#include "text/breaker_set.h"

#include <algorithm>
#include <array>
#include <optional>

#include "text/tokenizer.h"

namespace ibid {

BreakerSet::BreakerSet(std::vector<std::string> texts, std::shared_ptr<const Tokenizer> tokenizer)
    : texts_(std::move(texts)), tokenizer_(std::move(tokenizer)) {
  // Most bytes begin no text; a vocabulary has a million of them.
  std::array<std::vector<std::string_view>, 256> by_first;
  for (const std::string& text : texts_) by_first[static_cast<unsigned char>(text.front())].push_back(text);
  const auto begins_at_start = [&](std::string_view rest) {
    return std::ranges::any_of(by_first[static_cast<unsigned char>(rest.front())],
                               [&](std::string_view text) { return rest.starts_with(text) || text.starts_with(rest); });
  };
  may_begin_.resize(static_cast<size_t>(tokenizer_->vocab_size()));
  for (size_t i = 0; i < may_begin_.size(); ++i) {
    std::string_view rest = tokenizer_->token_bytes(TokenId{static_cast<int32_t>(i)});
    while (!rest.empty() && !begins_at_start(rest)) rest.remove_prefix(1);
    may_begin_[i] = !rest.empty();
  }
}

Result<std::shared_ptr<const BreakerSet>> BreakerSet::compile(std::vector<std::string> texts,
                                                              std::shared_ptr<const Tokenizer> tokenizer) {
  for (const std::string& text : texts) {
    if (text.empty()) return invalid("A sequence breaker is empty; each must have at least one character.");
    if (text.size() > kMaxTextBytes) {
      return invalid("A sequence breaker has " + std::to_string(text.size()) + " bytes; at most " +
                     std::to_string(kMaxTextBytes) + " are served.");
    }
  }
  return std::shared_ptr<const BreakerSet>(new BreakerSet(std::move(texts), std::move(tokenizer)));
}

size_t BreakerSet::n_behind_last(std::span<const TokenId> older, std::span<const TokenId> newer, size_t n) const {
  const auto from_end = [&](size_t back) {
    return back < newer.size() ? newer[newer.size() - 1 - back] : older[older.size() - 1 - (back - newer.size())];
  };
  const auto bytes_from_end = [&](size_t back) { return tokenizer_->token_bytes(from_end(back)); };
  // Tokens behind the one in which `text` ends, if it begins at byte `from` of the token that `back` others follow.
  const auto n_behind = [&](std::string_view text, size_t back, size_t from) -> std::optional<size_t> {
    for (std::string_view rest = bytes_from_end(back).substr(from);; rest = bytes_from_end(--back)) {
      if (rest.starts_with(text)) return back;
      if (!text.starts_with(rest) || back == 0) return std::nullopt;
      text.remove_prefix(rest.size());
    }
  };
  for (size_t back = 0; back < n; ++back) {
    const auto id = static_cast<size_t>(raw(from_end(back)));
    if (id >= may_begin_.size() || !may_begin_[id]) continue;
    // The one that begins last; of those that begin at one byte, the longest.
    for (size_t from = bytes_from_end(back).size(); from-- > 0;) {
      std::optional<size_t> found;
      for (const std::string& text : texts_) {
        const std::optional<size_t> here = n_behind(text, back, from);
        if (here && (!found || *here < *found)) found = here;
      }
      if (found) return *found;
    }
  }
  return n;
}

}  // namespace ibid
