#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "spec/experimental/text_store.h"
#include "spec/experimental/text_store_format.h"

namespace ibid {

TextStoreWriter::TextStoreWriter(int64_t max_tokens)
    : max_tokens_(static_cast<size_t>(std::min(max_tokens, TextStore::kMaxTokens))) {}

bool TextStoreWriter::add(std::span<const TokenId> tokens) {
  // One place is for the text's end.
  const size_t n_left = max_tokens_ - std::min(max_tokens_, tokens_.size() + 1);
  is_full_ |= tokens.size() > n_left;
  tokens_.insert(tokens_.end(), tokens.begin(),
                 tokens.begin() + static_cast<std::ptrdiff_t>(std::min(tokens.size(), n_left)));
  return !is_full_;
}

void TextStoreWriter::end_text() {
  if (tokens_.empty() || tokens_.back() == TextStore::kTextEnd) return;
  tokens_.push_back(TextStore::kTextEnd);
  ++n_texts_;
}

// Orders by the preceding token first, by counting; then each part by the tokens before that one.
std::vector<uint32_t> TextStoreWriter::ordered_places(int32_t vocab_size) const {
  const auto before = [&](uint32_t place, int32_t i) {
    return place < static_cast<uint32_t>(i) ? TextStore::kTextEnd : tokens_[place - static_cast<uint32_t>(i)];
  };
  const auto part_of = [&](uint32_t place) { return static_cast<size_t>(raw(before(place, 1)) + 1); };
  const auto n = static_cast<uint32_t>(tokens_.size());
  std::vector<uint32_t> begins(static_cast<size_t>(vocab_size) + 2, 0), order(n);
  for (uint32_t at = 0; at < n; ++at) ++begins[part_of(at) + 1];
  for (size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
  std::vector<uint32_t> next = begins;
  for (uint32_t at = 0; at < n; ++at) order[next[part_of(at)]++] = at;
  for (size_t part = 1; part + 1 < begins.size(); ++part) {  // places of the first part have no token before them
    std::sort(order.begin() + begins[part], order.begin() + begins[part + 1], [&](uint32_t a, uint32_t b) {
      int32_t n_same = 0;
      const int order_of = compare_backwards([&](int32_t i) { return before(a, i); },
                                             [&](int32_t i) { return before(b, i); }, TextStore::kMaxMatch, n_same);
      return order_of != 0 ? order_of < 0 : a < b;
    });
  }
  return order;
}

Status TextStoreWriter::write(const std::string& path, const Vocabulary& vocabulary, std::string_view name) {
  end_text();
  if (tokens_.empty()) return invalid("There is no text to make a store of.");
  for (const TokenId id : tokens_) {
    if (raw(id) >= -1 && raw(id) < static_cast<int64_t>(vocabulary.tokens.size())) continue;
    return invalid("Token " + std::to_string(raw(id)) + " is not in the vocabulary of " +
                   std::to_string(vocabulary.tokens.size()) + " tokens.");
  }
  const std::vector<uint32_t> order = ordered_places(static_cast<int32_t>(vocabulary.tokens.size()));
  TextStoreHead head = {.vocab_size = static_cast<uint32_t>(vocabulary.tokens.size()),
                        .n_tokens = tokens_.size(),
                        .name_len = static_cast<uint32_t>(std::min(name.size(), head.name.size())),
                        .vocabulary = vocabulary_digest(vocabulary)};
  std::memcpy(head.name.data(), name.data(), head.name_len);
  const std::span<const std::byte> before = std::as_bytes(std::span(&head, 1)).first(kHeadDigested);
  const auto tokens = std::as_bytes(std::span(tokens_)), places = std::as_bytes(std::span(order));
  head.digest = sha256({before, tokens, places});

  const std::string partial = path + ".partial";
  const auto failed = [&] {
    Error error = unavailable("cannot write " + path + ": " + std::strerror(errno), path);
    std::remove(partial.c_str());
    return error;
  };
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(partial.c_str(), "wb"), &std::fclose);
  if (!file) return failed();
  for (const auto& bytes : {std::as_bytes(std::span(&head, 1)).subspan(0), tokens, places}) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) return failed();
  }
  if (std::fclose(file.release()) != 0) return failed();
  if (std::rename(partial.c_str(), path.c_str()) != 0) return failed();
  return {};
}

}  // namespace ibid
