// TextStore: a file of tokens in which sequences are looked up: which of its places follow the longest suffix of a
// sequence, and which tokens most often come next there (retrieval as a proposer: He, Zhong, Cai, Lee, He, "REST:
// Retrieval-Based Speculative Decoding", 2023). REST reads its suffix array forwards and searches once per length; here
// places are ordered by the tokens *before* them, read backwards, so one search finds the longest match of any length.
//
// File format, all numbers little-endian:
//   8 bytes "IBIDTEXT", u32 version 1, u32 V, u64 n, u32 length of the name, u32 0,
//   32 bytes digest of the vocabulary, 64 bytes name of the model, zeros after it,
//   32 bytes SHA-256 of all before and all after it,
//   i32 [n] tokens, where -1 ends a text, u32 [n] all places, ordered by the kMaxMatch tokens before them.
//
// Mapped read-only. open() reads and checks the whole file; values read later are checked again on use, because another
// program may write to the file meanwhile: drafts then get worse, but no read is out of bounds. If the file is cut
// short, there are no more drafts. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "base/sha256.h"
#include "text/tokenizer/vocabulary.h"

namespace ibid {

// A possible continuation of a sequence.
struct StoreDraft {
  int32_t match_len = 0;  // length of the sequence's suffix that was found; 0: none
  std::vector<TokenId> tokens;
  // Per token, the share of the places agreeing so far that continue with it.
  std::vector<float> share;
  void clear() { match_len = 0, tokens.clear(), share.clear(); }
};

// Digest of all tokens' spellings, in order.
Sha256Digest vocabulary_digest(const Vocabulary& vocabulary);

class TextStore {
 public:
  static constexpr int32_t kMaxMatch = 32;    // tokens; longer matches are cut to this length
  static constexpr int32_t kMaxSamples = 64;  // maximum places sampled for their continuation
  static constexpr int64_t kMaxTokens = int64_t{1} << 30;
  static constexpr TokenId kTextEnd = TokenId::kNone;

  // kNotFound, kUnavailable: the file cannot be read; kInvalid: not a store, or damaged; kUnsupported: another version
  // or another vocabulary.
  static Result<std::shared_ptr<const TextStore>> open(const std::string& path, const Vocabulary& vocabulary);

  // A range of the order: the places whose preceding `len` tokens are the sequence's last ones: [first, first + n).
  struct Match {
    int32_t len = 0;
    int64_t first = 0, n = 0;
  };
  // Finds the longest suffix of `tokens` in the store. At most 3 (log2(n) + 1) comparisons of at most kMaxMatch tokens.
  Match find(std::span<const TokenId> tokens) const;
  // Returns in `out` the most frequent continuation of the match, at most max_tokens; ties go to the first places. If
  // more than kMaxSamples places match, kMaxSamples evenly spaced ones are sampled. Reads at most kMaxSamples *
  // max_tokens tokens.
  void draft(std::span<const TokenId> tokens, int32_t max_tokens, StoreDraft& out) const;

  int64_t n_tokens() const { return n_; }
  int64_t bytes() const { return static_cast<int64_t>(file_.bytes().size()); }  // the file's size; all of it is read
  const std::string& path() const { return file_.path(); }
  // The token at a place; kTextEnd past the end, at the end of a text, and for invalid ids.
  TokenId token(int64_t place) const;
  // The i-th place in the order.
  int64_t place(int64_t i) const;

 private:
  TextStore(MappedFile file, int64_t n, int32_t vocab_size) : file_(std::move(file)), n_(n), vocab_size_(vocab_size) {}
  template <typename Before>
  int64_t partition_point(Before before) const;

  MappedFile file_;
  int64_t n_;
  int32_t vocab_size_;
};

// Writes such a file. Uses eight bytes per token, and as much again for counts over the vocabulary.
class TextStoreWriter {
 public:
  // Accepts at most max_tokens tokens, including one end token per text.
  explicit TextStoreWriter(int64_t max_tokens);
  // Adds tokens to the current text. Returns false if they do not all fit: those that fit are added, and nothing after
  // that.
  bool add(std::span<const TokenId> tokens);
  void end_text();
  int64_t n_tokens() const { return static_cast<int64_t>(tokens_.size()); }  // including one end token per text
  int64_t n_texts() const { return n_texts_; }

  // Orders the places and writes the file beside `path`, then renames it. `name`: the model's name, for error messages.
  // kInvalid: no token was added, or one is not in the vocabulary; kUnavailable: the file cannot be written.
  Status write(const std::string& path, const Vocabulary& vocabulary, std::string_view name);

 private:
  std::vector<uint32_t> ordered_places(int32_t vocab_size) const;

  size_t max_tokens_;
  std::vector<TokenId> tokens_;
  int64_t n_texts_ = 0;
  bool is_full_ = false;
};

}  // namespace ibid
