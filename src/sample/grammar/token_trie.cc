#include "sample/grammar/token_trie.h"

#include <algorithm>

#include "base/utf8.h"

namespace ibid::grammar {
namespace {

constexpr size_t kMaxTokenBytes = 4096;  // longer ones are in no trie, and so in no answer

bool is_lower(uint8_t b) { return b >= 'a' && b <= 'z'; }
bool is_letter(uint8_t b) { return is_lower(b | 0x20); }
bool is_digit(uint8_t b) { return b >= '0' && b <= '9'; }

size_t kind_of(std::string_view bytes) {
  if (!utf8::is_valid(bytes)) return static_cast<size_t>(TokenKind::kRest);
  for (size_t kind = 0; kind < kPlainKinds; ++kind)
    if (std::all_of(bytes.begin(), bytes.end(), [&](char c) { return kind_has(kind, static_cast<uint8_t>(c)); }))
      return kind;
  return static_cast<size_t>(TokenKind::kRest);
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
      return b >= 0x20 && b != '"' && b != '\\';
    case TokenKind::kRest:
      return false;
  }
  return false;
}

TokenTrie::TokenTrie(std::span<const std::string_view> bytes) : vocab_size_(static_cast<int32_t>(bytes.size())) {
  twins_.assign(bytes.size(), -1);
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
}

std::string_view TokenTrie::bytes_of(TokenId token) const {
  const auto t = static_cast<size_t>(raw(token));
  if (raw(token) < 0 || t + 1 >= begin_.size()) return {};
  return {text_.data() + begin_[t], begin_[t + 1] - begin_[t]};
}

void TokenTrie::build(Kind& kind, std::vector<int32_t>& tokens) {
  auto text = [&](int32_t t) { return bytes_of(TokenId{t}); };
  std::sort(tokens.begin(), tokens.end(), [&](int32_t a, int32_t b) {
    const int order = text(a).compare(text(b));
    return order != 0 ? order < 0 : a < b;
  });
  kind.n_tokens = static_cast<uint32_t>(tokens.size());
  std::vector<uint32_t> path;  // open nodes by depth
  std::string_view before;
  int32_t last = -1;
  for (int32_t token : tokens) {
    const std::string_view b = text(token);
    if (last >= 0 && b == before) {
      twins_[static_cast<size_t>(last)] = token;
      last = token;
      continue;
    }
    size_t same = 0;
    while (same < before.size() && same < b.size() && before[same] == b[same]) ++same;
    for (; path.size() > same; path.pop_back()) kind.nodes[path.back()].skip = static_cast<uint32_t>(kind.nodes.size());
    for (size_t i = same; i < b.size(); ++i) {
      path.push_back(static_cast<uint32_t>(kind.nodes.size()));
      kind.nodes.push_back({0, static_cast<uint8_t>(b[i]), 0, static_cast<uint16_t>(i + 1)});
      kind.tokens.push_back(-1);
    }
    kind.nodes.back().is_token = 1;
    kind.tokens.back() = token;
    before = b;
    last = token;
  }
  for (uint32_t open : path) kind.nodes[open].skip = static_cast<uint32_t>(kind.nodes.size());
  if (&kind == &kinds_[static_cast<size_t>(TokenKind::kRest)]) return;
  size_t longest = 0;
  for (int32_t token : tokens) longest = std::max(longest, utf8::count(text(token)));
  kind.longest = static_cast<uint32_t>(longest);
  kind.up_to.assign(std::min<size_t>(longest, kMaxCounted + 1) + 1, std::vector<uint32_t>(mask_words(), 0));
  for (int32_t token : tokens) {
    const size_t n = std::min<size_t>(utf8::count(text(token)), kMaxCounted + 1);
    kind.up_to[n][static_cast<size_t>(token) / 32] |= 1u << (token % 32);
  }
  for (size_t n = 1; n < kind.up_to.size(); ++n)
    for (size_t w = 0; w < mask_words(); ++w) kind.up_to[n][w] |= kind.up_to[n - 1][w];
}

}  // namespace ibid::grammar
