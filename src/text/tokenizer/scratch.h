// EncodeScratch: the working memory of one thread for one tokenizer: word cache, merge lists, text buffers. Each thread
// keeps those of the last two tokenizers that it used until it ends; it grows to the largest text seen, and what a very
// large text left behind is given back at the end of its call.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/pattern.h"

namespace ibid {

// Direct-mapped: the last word of each hash wins. 64 bytes an entry.
class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 26;
  static constexpr size_t kMaxIds = 9;
  struct Entry {
    char word[kMaxWordBytes];
    uint8_t word_bytes;
    uint8_t n_ids;  // 0: free
    TokenId ids[kMaxIds];
  };

  WordCache() : entries_(kEntries, Entry{}) {}
  Entry& entry_of(std::string_view word) { return entries_[hash(word) & (kEntries - 1)]; }
  static bool holds(const Entry& e, std::string_view word) {
    return e.n_ids > 0 && e.word_bytes == word.size() && std::memcmp(e.word, word.data(), word.size()) == 0;
  }
  static void store(Entry& e, std::string_view word, const TokenId* ids, size_t n_ids) {
    if (n_ids == 0 || n_ids > kMaxIds) return;
    std::memcpy(e.word, word.data(), word.size());
    e.word_bytes = static_cast<uint8_t>(word.size());
    e.n_ids = static_cast<uint8_t>(n_ids);
    std::memcpy(e.ids, ids, n_ids * sizeof(TokenId));
  }

 private:
  static constexpr size_t kEntries = 16384;
  static size_t hash(std::string_view word) {
    uint64_t h = word.size();
    const char* p = word.data();
    size_t n = word.size();
    uint64_t x = 0;
    for (; n >= 8; p += 8, n -= 8) {
      std::memcpy(&x, p, 8);
      h = (h ^ x) * 0x9E3779B97F4A7C15u;
      h ^= h >> 29;
    }
    x = 0;
    if (n > 0) std::memcpy(&x, p, n);
    h = (h ^ x) * 0x9E3779B97F4A7C15u;
    return static_cast<size_t>(h >> 40);
  }
  std::vector<Entry> entries_;
};

struct EncodeScratch {
  uint64_t owner = 0;
  WordCache cache;
  BpeScratch bpe;
  Pattern::Budget budget;                 // of the text that is being read
  std::string repaired;                   // the text without invalid bytes
  std::string spelled;                    // a word as its token would be spelled
  std::vector<int32_t> unmerged;          // ids of one character that no merge took
  std::array<std::string, 2> normalized;  // normalizer steps write from one to the other
  std::vector<std::string> step_text;     // one per pre-tokenizer step that changes text
  std::vector<std::string> step_word;     // one per step that spells bytes
  std::vector<double> best_score;         // unigram lattice
  std::vector<int32_t> best_begin, best_id;

  void trim();
};

// This thread's scratch for the tokenizer with this serial number.
EncodeScratch& scratch_of(uint64_t owner);

}  // namespace ibid
