#include "spec/drafts.h"

#include "base/planted.h"

namespace ibid {

int32_t Drafts::depth(int32_t i) const {
  int32_t n = 0;
  for (; i >= 0; i = parents[static_cast<size_t>(i)]) ++n;
  return n;
}

int32_t Drafts::child(int32_t parent, TokenId token, int32_t n) const {
  for (int32_t i = parent + 1; i < n; ++i) {
    if (parents[static_cast<size_t>(i)] != parent) continue;
    if (tokens[static_cast<size_t>(i)] == token || PLANTED("wrong_draft_taken")) return i;
  }
  return -1;
}

bool Drafts::is_chain(int32_t n) const {
  for (int32_t i = 0; i < n; ++i) {
    if (parents[static_cast<size_t>(i)] != i - 1) return false;
  }
  return true;
}

}  // namespace ibid
