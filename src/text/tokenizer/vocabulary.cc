#include "text/tokenizer/vocabulary.h"

#include <algorithm>

#include "base/quoted.h"

namespace ibid {

std::optional<std::string> first_difference(const Vocabulary& a, const Vocabulary& b) {
  size_t n = std::min(a.tokens.size(), b.tokens.size());
  for (size_t i = 0; i < n; ++i) {
    if (a.tokens[i] == b.tokens[i]) continue;
    return "token " + std::to_string(i) + " is " + in_quotes(a.tokens[i]) + " in the first vocabulary and " +
           in_quotes(b.tokens[i]) + " in the second";
  }
  if (a.tokens.size() != b.tokens.size()) {
    return "the first vocabulary has " + std::to_string(a.tokens.size()) + " tokens and the second " +
           std::to_string(b.tokens.size());
  }
  auto ends = [](const Vocabulary& v) {
    std::vector<TokenId> ids = v.end_of_generation;
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  };
  std::vector<TokenId> of_a = ends(a), of_b = ends(b);
  auto [in_a, in_b] = std::mismatch(of_a.begin(), of_a.end(), of_b.begin(), of_b.end());
  if (in_a == of_a.end() && in_b == of_b.end()) return std::nullopt;
  bool first = in_b == of_b.end() || (in_a != of_a.end() && *in_a < *in_b);
  return "token " + std::to_string(raw(first ? *in_a : *in_b)) + " ends an answer in the " +
         (first ? "first" : "second") + " vocabulary only";
}

}  // namespace ibid
