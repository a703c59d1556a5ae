#include "text/output/breaker_set.h"

#include "text/tokenizer/tokenizer.h"

namespace ibid {

BreakerSet::BreakerSet(std::vector<std::string> texts, std::shared_ptr<const Tokenizer> tokenizer)
    : texts_(std::move(texts)), tokenizer_(std::move(tokenizer)) {
  add_texts();
  add_failures();
  // Most tokens have nothing of any text; a vocabulary has a million of them.
  matters_.resize(static_cast<size_t>(tokenizer_->vocab_size()));
  for (size_t i = 0; i < matters_.size(); ++i) {
    const std::string_view bytes = tokenizer_->token_bytes(TokenId{static_cast<int32_t>(i)});
    uint16_t node = 0;
    bool found = false;
    for (size_t at = bytes.size(); at-- > 0 && !found;) {
      node = after(node, bytes[at]);
      found = text_len_[node] > 0;
    }
    matters_[i] = found || node != 0;
  }
}

// The trie of the texts read backwards.
void BreakerSet::add_texts() {
  size_t n_nodes = 1;
  for (const std::string& text : texts_) {
    n_nodes += text.size();
    for (const char c : text) {
      uint16_t& kind = kind_[static_cast<unsigned char>(c)];
      if (kind == 0) kind = static_cast<uint16_t>(n_kinds_++);
    }
  }
  next_.reserve(n_nodes * n_kinds_);
  const auto add_node = [this] {
    next_.resize(next_.size() + n_kinds_, 0);
    text_len_.push_back(0);
    return static_cast<uint16_t>(text_len_.size() - 1);
  };
  add_node();
  for (const std::string& text : texts_) {
    size_t node = 0;
    for (size_t at = text.size(); at-- > 0;) {
      const size_t edge = node * n_kinds_ + kind_[static_cast<unsigned char>(text[at])];
      if (next_[edge] == 0) next_[edge] = add_node();
      node = next_[edge];
    }
    text_len_[node] = static_cast<uint16_t>(text.size());
  }
}

// Where a node has no edge, that of the longest text's beginning that what was read ends with.
void BreakerSet::add_failures() {
  std::vector<uint16_t> failure(text_len_.size(), 0), queue = {0};
  for (size_t done = 0; done < queue.size(); ++done) {
    const size_t node = queue[done];
    for (size_t kind = 1; kind < n_kinds_; ++kind) {
      uint16_t& child = next_[node * n_kinds_ + kind];
      const uint16_t elsewhere = node == 0 ? uint16_t{0} : next_[failure[node] * n_kinds_ + kind];
      if (child == 0) {
        child = elsewhere;
        continue;
      }
      failure[child] = elsewhere;
      if (text_len_[child] == 0) text_len_[child] = text_len_[elsewhere];
      queue.push_back(child);
    }
  }
}

Result<std::shared_ptr<const BreakerSet>> BreakerSet::compile(std::vector<std::string> texts,
                                                              std::shared_ptr<const Tokenizer> tokenizer) {
  size_t n_bytes = 0;
  for (const std::string& text : texts) {
    n_bytes += text.size();
    if (text.empty()) return invalid("A sequence breaker is empty; each must have at least one character.");
    if (text.size() > kMaxTextBytes) {
      return invalid("A sequence breaker has " + std::to_string(text.size()) + " bytes; at most " +
                     std::to_string(kMaxTextBytes) + " are served.");
    }
  }
  if (n_bytes > kMaxBytes) {
    return invalid("The sequence breakers have " + std::to_string(n_bytes) + " bytes together; at most " +
                   std::to_string(kMaxBytes) + " are served.");
  }
  return std::shared_ptr<const BreakerSet>(new BreakerSet(std::move(texts), std::move(tokenizer)));
}

size_t BreakerSet::n_after_last(std::span<const TokenId> older, std::span<const TokenId> newer, size_t n) const {
  const auto id_from_end = [&](size_t back) {
    return static_cast<size_t>(
        raw(back < newer.size() ? newer[newer.size() - 1 - back] : older[older.size() - 1 - (back - newer.size())]));
  };
  const auto bytes_from_end = [&](size_t back) {
    const size_t id = id_from_end(back);
    return id < matters_.size() ? tokenizer_->token_bytes(TokenId{static_cast<int32_t>(id)}) : std::string_view();
  };
  uint16_t node = 0;
  for (size_t back = 0; back < n; ++back) {
    const size_t id = id_from_end(back);
    if (id >= matters_.size() || (node == 0 && !matters_[id])) continue;
    const std::string_view bytes = bytes_from_end(back);
    for (size_t at = bytes.size(); at-- > 0;) {
      node = after(node, bytes[at]);
      size_t left = text_len_[node];
      if (left == 0) continue;
      // It begins here and has `left` bytes: on to the token in which it ends.
      for (size_t here = bytes.size() - at; left > here; here = bytes_from_end(back).size()) {
        left -= here;
        --back;
      }
      return back;
    }
  }
  return n;
}

}  // namespace ibid
