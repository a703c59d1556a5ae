#include "spec/experimental/text_store.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/quoted.h"
#include "spec/experimental/text_store_format.h"

namespace ibid {
namespace {

Error damaged(const std::string& path, const std::string& what) {
  return invalid("The store " + in_quotes(path) + " is damaged: " + what + ". `ibid spec build-store` makes it again.",
                 "--spec");
}

Result<TextStoreHead> read_head(const MappedFile& file) {
  const std::string& path = file.path();
  TextStoreHead head;
  const bool has_magic =
      file.text().starts_with(std::string_view(TextStoreHead::kMagic.data(), TextStoreHead::kMagic.size()));
  if (!has_magic)
    return invalid(in_quotes(path) + " is no store of texts; `ibid spec build-store` makes one.", "--spec");
  if (file.bytes().size() < sizeof head) return damaged(path, "it ends within its head");
  std::memcpy(&head, file.bytes().data(), sizeof head);
  if (head.version != TextStoreHead::kVersion) {
    return unsupported("The store " + in_quotes(path) + " is of version " + std::to_string(head.version) +
                           "; this ibid reads version 1. `ibid spec build-store` makes it again.",
                       "--spec");
  }
  constexpr size_t kEach = sizeof(TokenId) + sizeof(uint32_t);
  if (head.n_tokens == 0 || head.n_tokens > static_cast<uint64_t>(TextStore::kMaxTokens) ||
      file.bytes().size() != sizeof head + head.n_tokens * kEach) {
    return damaged(path, "its head names " + std::to_string(head.n_tokens) + " tokens and the file has " +
                             std::to_string(file.bytes().size()) + " bytes");
  }
  const Sha256Digest digest = sha256({file.bytes().first(kHeadDigested), file.bytes().subspan(sizeof(TextStoreHead))});
  if (digest != head.digest) return damaged(path, "its bytes are not those that were written");
  if (head.name_len > head.name.size()) return damaged(path, "its model's name has no end");
  return head;
}

}  // namespace

Sha256Digest vocabulary_digest(const Vocabulary& vocabulary) {
  Sha256 sha;
  for (const std::string& token : vocabulary.tokens) {
    const uint64_t n = token.size();
    sha.add(&n, sizeof n);
    sha.add(token.data(), token.size());
  }
  return sha.digest();
}

Result<std::shared_ptr<const TextStore>> TextStore::open(const std::string& path, const Vocabulary& vocabulary) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  file.let_go_where_cut();
  ASSIGN_OR_RETURN(const TextStoreHead head, read_head(file));
  if (head.vocab_size != vocabulary.tokens.size() || head.vocabulary != vocabulary_digest(vocabulary)) {
    return unsupported("The store " + in_quotes(path) + " was made for the vocabulary of " +
                           in_quotes(std::string_view(head.name.data(), head.name_len)) + ", " +
                           std::to_string(head.vocab_size) + " tokens; this model has another one of " +
                           std::to_string(vocabulary.tokens.size()) + ".",
                       "--spec");
  }
  const auto n = static_cast<int64_t>(head.n_tokens);
  std::shared_ptr<const TextStore> store(new TextStore(std::move(file), n, static_cast<int32_t>(head.vocab_size)));
  // A digest is not a signature: a file's author may put anything after it.
  for (int64_t i = 0; i < n; ++i) {
    TokenId id;
    std::memcpy(&id, store->file_.bytes().data() + sizeof head + static_cast<size_t>(i) * sizeof id, sizeof id);
    if (raw(id) < -1 || raw(id) >= static_cast<int64_t>(head.vocab_size))
      return damaged(path, "token " + std::to_string(i) + " is " + std::to_string(raw(id)) + ", which is no id");
    if (store->place(i) >= n) return damaged(path, "place " + std::to_string(i) + " lies after its end");
  }
  return store;
}

TokenId TextStore::token(int64_t place) const {
  if (place < 0 || place >= n_) return kTextEnd;
  TokenId id;
  std::memcpy(&id, file_.bytes().data() + sizeof(TextStoreHead) + static_cast<size_t>(place) * sizeof id, sizeof id);
  return raw(id) < 0 || raw(id) >= vocab_size_ ? kTextEnd : id;
}

int64_t TextStore::place(int64_t i) const {
  uint32_t at;
  const size_t order = sizeof(TextStoreHead) + static_cast<size_t>(n_) * sizeof(TokenId);
  std::memcpy(&at, file_.bytes().data() + order + static_cast<size_t>(i) * sizeof at, sizeof at);
  return at;
}

// Number of places in the order for which `before` is true; it is true for a prefix of the order.
template <typename Before>
int64_t TextStore::partition_point(Before before) const {
  int64_t first = 0, n = n_;
  while (n > 0) {
    const int64_t half = n / 2;
    if (before(place(first + half)))
      first += half + 1, n -= half + 1;
    else
      n = half;
  }
  return first;
}

TextStore::Match TextStore::find(std::span<const TokenId> tokens) const {
  const auto n_last = static_cast<int32_t>(std::min<size_t>(tokens.size(), kMaxMatch));
  const auto of_end = [&](int32_t i) { return i > n_last ? kTextEnd : tokens[tokens.size() - static_cast<size_t>(i)]; };
  int32_t n_same = 0;
  const auto compare = [&](int64_t at, int32_t len) {
    return compare_backwards([&](int32_t i) { return token(at - i); }, of_end, len, n_same);
  };
  // The longest matches are adjacent to the position where the sequence itself would be inserted.
  const int64_t there = partition_point([&](int64_t at) { return compare(at, n_last) < 0; });
  Match match;
  for (const int64_t i : {there - 1, there}) {
    if (i < 0 || i >= n_) continue;
    compare(place(i), n_last);
    match.len = std::max(match.len, n_same);
  }
  if (match.len == 0) return match;
  match.first = partition_point([&](int64_t at) { return compare(at, match.len) < 0; });
  match.n = partition_point([&](int64_t at) { return compare(at, match.len) <= 0; }) - match.first;
  // In a file that changes while mapped, the two bounds may be inconsistent.
  if (match.n <= 0) return {};
  return match;
}

void TextStore::draft(std::span<const TokenId> tokens, int32_t max_tokens, StoreDraft& out) const {
  out.clear();
  if (file_.is_lost()) return;
  const Match match = find(tokens);
  if (match.len == 0) return;
  struct Sample {
    int64_t place;
    int32_t rank;
    TokenId next;
  };
  std::array<Sample, kMaxSamples> samples;
  auto n = static_cast<size_t>(std::min<int64_t>(match.n, kMaxSamples));
  for (size_t i = 0; i < n; ++i) {
    const int64_t at = place(match.first + static_cast<int64_t>(i) * match.n / static_cast<int64_t>(n));
    samples[i] = {at, static_cast<int32_t>(i), kTextEnd};
  }
  for (int32_t depth = 0; depth < max_tokens && n > 0; ++depth) {
    const std::span<Sample> live(samples.data(), n);
    for (Sample& s : live) s.next = token(s.place++);
    std::ranges::sort(
        live, [](const Sample& a, const Sample& b) { return a.next != b.next ? a.next < b.next : a.rank < b.rank; });
    std::span<Sample> most;
    for (size_t begin = 0, end; begin < n; begin = end) {
      for (end = begin + 1; end < n && live[end].next == live[begin].next;) ++end;
      const std::span<Sample> same = live.subspan(begin, end - begin);
      if (same.front().next == kTextEnd) continue;
      const bool is_earlier = !most.empty() && same.front().rank < most.front().rank;
      if (same.size() > most.size() || (same.size() == most.size() && is_earlier)) most = same;
    }
    if (most.empty()) break;
    out.tokens.push_back(most.front().next);
    out.share.push_back(static_cast<float>(most.size()) / static_cast<float>(n));
    n = most.size();
    std::ranges::copy(most, samples.begin());
  }
  if (file_.is_lost()) return out.clear();  // lost during this look-up
  if (!out.tokens.empty()) out.match_len = match.len;
}

}  // namespace ibid
