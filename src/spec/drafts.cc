#include "spec/drafts.h"

#include "base/grow.h"

namespace ibid {

int32_t Drafts::depth(int32_t i) const {
  int32_t n = 0;
  for (; i >= 0; i = parents[static_cast<size_t>(i)]) ++n;
  return n;
}

int32_t Drafts::child(int32_t parent, TokenId token, int32_t n) const {
  for (int32_t i = parent + 1; i < n; ++i) {
    if (parents[static_cast<size_t>(i)] != parent) continue;
    if (tokens[static_cast<size_t>(i)] == token) return i;
  }
  return -1;
}

bool Drafts::is_chain(int32_t n) const {
  for (int32_t i = 0; i < n; ++i) {
    if (parents[static_cast<size_t>(i)] != i - 1) return false;
  }
  return true;
}

void Drafts::first_way(size_t n, std::vector<TokenId>& out) const {
  out.clear();
  int32_t last = -1;
  for (int32_t i = 0; i < size() && out.size() < n; ++i) {
    if (parents[static_cast<size_t>(i)] != last) continue;
    grow(out, out.size() + 1);
    out.push_back(tokens[static_cast<size_t>(i)]);
    last = i;
  }
}

}  // namespace ibid
