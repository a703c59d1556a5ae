#include "sample/grammar/token_trie.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "base/utf8.h"

namespace ibid::grammar {
namespace {

constexpr size_t kMaxTokenBytes = 4096;  // longer ones are in no trie, and so in no answer

bool is_lower(uint8_t b) { return b >= 'a' && b <= 'z'; }
bool is_letter(uint8_t b) { return is_lower(b | 0x20); }
bool is_digit(uint8_t b) { return b >= '0' && b <= '9'; }

// Which bytes a token begins with that are whole code points of a kind, and how many code points these are.
struct Head {
  size_t n_bytes = 0;
  uint32_t n_codes = 0;
};
Head head_of(std::string_view bytes, size_t kind) {
  Head head;
  while (head.n_bytes < bytes.size() && kind_has(kind, static_cast<uint8_t>(bytes[head.n_bytes]))) {
    const utf8::CodePoint c = utf8::decode(bytes.data() + head.n_bytes, bytes.data() + bytes.size());
    if (!c.valid) break;
    head.n_bytes += c.len;
    ++head.n_codes;
  }
  return head;
}

size_t kind_of(std::string_view bytes) {
  for (size_t kind = 0; kind < kPlainKinds; ++kind)
    if (head_of(bytes, kind).n_bytes == bytes.size()) return kind;
  return static_cast<size_t>(head_of(bytes, kUnicode).n_bytes > 0 ? TokenKind::kTailed : TokenKind::kRest);
}

}  // namespace

bool kind_has(size_t kind, uint8_t b) {
  switch (static_cast<TokenKind>(kind)) {
    case TokenKind::kLower:
      return is_lower(b);
    case TokenKind::kLetters:
      return is_letter(b);
    case TokenKind::kDigits:
      return is_digit(b);
    case TokenKind::kWord:
      return is_letter(b) || is_digit(b) || b == '_' || b == '-';
    case TokenKind::kPhrase:
      return is_letter(b) || b == ' ';
    case TokenKind::kPrinted:
      return b >= 0x20 && b < 0x7F && b != '"' && b != '\\';
    case TokenKind::kUnicode:
      return is_plain(b);
    case TokenKind::kTailed:
    case TokenKind::kRest:
      return false;
  }
  return false;
}

ByteGroups groups_of_kind(size_t kind) {
  static const auto table = [] {
    std::array<ByteGroups, kPlainKinds> groups{};
    for (size_t k = 0; k < kPlainKinds; ++k)
      for (uint8_t b = 0; b < 0x80; ++b)
        if (kind_has(k, b)) groups[k] |= ByteGroups{1} << group_of_ascii(b);
    groups[kUnicode] |= ByteGroups{1} << kNonAsciiGroup | ByteGroups{1} << kFarSpaceGroup;
    return groups;
  }();
  return table[kind];
}

bool kind_has_kind(size_t outer, size_t inner) {
  static const auto table = [] {
    std::array<std::array<bool, kPlainKinds>, kPlainKinds> has;
    for (size_t o = 0; o < kPlainKinds; ++o) {
      for (size_t i = 0; i < kPlainKinds; ++i) {
        has[o][i] = true;
        for (uint32_t b = 0; b < 256; ++b)
          has[o][i] &= !kind_has(i, static_cast<uint8_t>(b)) || kind_has(o, static_cast<uint8_t>(b));
      }
    }
    return has;
  }();
  return table[outer][inner];
}

TokenTrie::TokenTrie(std::span<const std::string_view> bytes) : vocab_size_(static_cast<int32_t>(bytes.size())) {
  size_t n_bytes = 0;
  for (std::string_view b : bytes) n_bytes += b.size();
  text_.reserve(n_bytes);
  begin_.reserve(bytes.size() + 1);
  std::array<std::vector<int32_t>, kTokenKinds> tokens;
  for (size_t t = 0; t < bytes.size(); ++t) {
    begin_.push_back(static_cast<uint32_t>(text_.size()));
    if (bytes[t].empty() || bytes[t].size() > kMaxTokenBytes) continue;
    text_.insert(text_.end(), bytes[t].begin(), bytes[t].end());
    if (bytes[t].size() == 1) single_bytes_.set(static_cast<uint8_t>(bytes[t][0]));
    longest_ = std::max(longest_, static_cast<uint32_t>(bytes[t].size()));
    tokens[kind_of(bytes[t])].push_back(static_cast<int32_t>(t));
  }
  begin_.push_back(static_cast<uint32_t>(text_.size()));
  for (size_t i = 0; i < kTokenKinds; ++i) build(kinds_[i], tokens[i]);
  for (size_t i : {kDigits, kUnicode}) build_tails(i);
  build_buckets();
  plain_.assign(kMaxCounted + 2, std::vector<uint32_t>(mask_words(), 0));
  for (size_t i = 0; i < kPlainKinds; ++i)
    for (uint32_t n = 0; n < plain_.size(); ++n)
      for (size_t w = 0; w < mask_words(); ++w) plain_[n][w] |= kinds_[i].up_to_n(n)[w];
  counts_ = kinds_[kDigits].up_to;
  for (int32_t t : tokens[kDigits])
    if (bytes[static_cast<size_t>(t)][0] == '0')
      for (auto& bits : counts_) bits[static_cast<size_t>(t) / 32] &= ~(1u << (t % 32));
}

std::string_view TokenTrie::bytes_of(TokenId token) const {
  const auto t = static_cast<size_t>(raw(token));
  if (raw(token) < 0 || t + 1 >= begin_.size()) return {};
  return {text_.data() + begin_[t], begin_[t + 1] - begin_[t]};
}

void TokenTrie::build(Kind& kind, std::span<const int32_t> tokens) {
  std::vector<ByteTrie::Entry> entries;
  for (int32_t token : tokens) entries.push_back({bytes_of(TokenId{token}), token});
  const bool is_plain = &kind < &kinds_[kPlainKinds];
  kind.trie.build(std::move(entries), is_plain);
  if (!is_plain) return;
  for (int32_t token : tokens) {
    const auto n_codes = static_cast<uint32_t>(utf8::count(bytes_of(TokenId{token})));
    kind.longest = std::max(kind.longest, n_codes);
    if (n_codes > kMaxCounted) kind.long_ones.push_back({n_codes, token});
  }
  kind.up_to.assign(std::min(kind.longest, kMaxCounted + 1) + 1, std::vector<uint32_t>(mask_words(), 0));
  for (int32_t token : tokens) {
    const size_t n = std::min<size_t>(utf8::count(bytes_of(TokenId{token})), kMaxCounted + 1);
    kind.up_to[n][static_cast<size_t>(token) / 32] |= 1u << (token % 32);
  }
  for (size_t n = 1; n < kind.up_to.size(); ++n)
    for (size_t w = 0; w < mask_words(); ++w) kind.up_to[n][w] |= kind.up_to[n - 1][w];
}

void TokenTrie::build_tails(size_t kind) {
  std::vector<ByteTrie::Entry> entries;
  Tails& tails = tails_[kind];
  for (size_t k = 0; k < kPlainKinds; ++k)
    if (kind_has_kind(kind, k)) tails.longest = std::max(tails.longest, kinds_[k].longest);
  for (int32_t t = 0; t < vocab_size_; ++t) {
    const std::string_view bytes = bytes_of(TokenId{t});
    const Head head = head_of(bytes, kind);
    if (head.n_codes == 0) continue;
    if (head.n_bytes == bytes.size()) continue;
    entries.push_back({bytes.substr(head.n_bytes), t, static_cast<uint16_t>(head.n_codes)});
    tails.longest = std::max(tails.longest, head.n_codes);
  }
  tails.trie.build(std::move(entries), false);
  const ByteTrie& trie = tails.trie;
  for (int32_t token : trie.tokens) tails.first.push_back(static_cast<uint8_t>(bytes_of(TokenId{token})[0]));
  for (uint32_t i = trie.nodes[0].child; i < trie.nodes[0].child + trie.nodes[0].n_children; ++i) {
    const auto entry = [&](uint32_t at) { return trie.lengths.begin() + static_cast<ptrdiff_t>(at); };
    std::vector<uint16_t> lengths(entry(trie.nodes[i].first), entry(trie.nodes[i].end));
    std::sort(lengths.begin(), lengths.end());
    lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
    tails.lengths.push_back(std::move(lengths));
  }
}

void TokenTrie::build_buckets() {
  struct Token {
    bool is_tailed;
    ByteGroups first, rest;
    uint32_t n_codes;
    std::string_view bytes;
    int32_t token;
    auto operator<=>(const Token&) const = default;
  };
  std::vector<Token> all;
  for (int32_t t = 0; t < vocab_size_; ++t) {
    const std::string_view bytes = bytes_of(TokenId{t});
    for (char byte : bytes) used_bytes_.set(static_cast<uint8_t>(byte));
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = plain_prefix(bytes.substr(at));
      for (char byte : bytes.substr(at, n)) plain_bytes_.set(static_cast<uint8_t>(byte));
      at += std::max<size_t>(n, 1);
    }
    const Head head = head_of(bytes, kUnicode);
    if (head.n_codes == 0) continue;
    const size_t n_first = utf8::len_of(bytes[0]);
    all.push_back({head.n_bytes < bytes.size(), groups_of(bytes.substr(0, n_first)),
                   groups_of(bytes.substr(n_first, head.n_bytes - n_first)), std::min(head.n_codes, kMaxCounted + 1),
                   bytes, t});
  }
  std::sort(all.begin(), all.end());
  bucket_begin_.assign(1, 0);
  const Token* last = nullptr;
  std::vector<uint32_t> bucket_of(static_cast<size_t>(vocab_size_));
  for (const Token& token : all) {
    const auto n = static_cast<uint32_t>(bucket_tokens_.size());
    const auto first = static_cast<uint8_t>(std::countr_zero(token.first));
    const bool is_new = last == nullptr || std::tie(last->is_tailed, last->first, last->rest) !=
                                               std::tie(token.is_tailed, token.first, token.rest);
    if (is_new) buckets_.push_back({token.rest, n, first, static_cast<uint8_t>(kind_of(token.bytes))});
    if (!token.is_tailed) first_tailed_ = static_cast<uint32_t>(buckets_.size());
    last = &token;
    const std::string_view before = n > 0 ? bucket_bytes(n - 1) : "";
    const auto end = std::mismatch(before.begin(), before.end(), token.bytes.begin(), token.bytes.end()).first;
    const auto n_shared = std::min<std::ptrdiff_t>(end - before.begin(), 255);  // fewer are as right
    bucket_shared_.push_back(static_cast<uint8_t>(n_shared));
    bucket_text_.insert(bucket_text_.end(), token.bytes.begin(), token.bytes.end());
    bucket_begin_.push_back(static_cast<uint32_t>(bucket_text_.size()));
    bucket_tokens_.push_back(token.token);
    bucket_lengths_.push_back(static_cast<uint8_t>(token.n_codes));
    buckets_.back().longest = static_cast<uint8_t>(token.n_codes);
    bucket_of[static_cast<size_t>(token.token)] = static_cast<uint32_t>(buckets_.size() - 1);
    ++n_first_[first];
  }
  buckets_.push_back({0, static_cast<uint32_t>(bucket_tokens_.size())});
  for (uint32_t b = 0; b < n_buckets() && bucket_bits_.size() < kNoBits; ++b) {
    if (bucket_end(b) - buckets_[b].begin < mask_words() / 8) continue;
    buckets_[b].bits = static_cast<uint8_t>(bucket_bits_.size());
    std::vector<uint32_t>& bits = bucket_bits_.emplace_back(mask_words(), 0);
    for (uint32_t i = buckets_[b].begin; i < bucket_end(b); ++i)
      bits[static_cast<size_t>(bucket_tokens_[i]) / 32] |= 1u << (bucket_tokens_[i] % 32);
  }
  Tails& tails = tails_[kUnicode];
  for (int32_t token : tails.trie.tokens) tails.bucket.push_back(bucket_of[static_cast<size_t>(token)]);
}

}  // namespace ibid::grammar
