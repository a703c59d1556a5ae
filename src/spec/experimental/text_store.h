// TextStore: a file of tokens that texts are looked up in: which of its places stand after the longest end of a text,
// and what follows there most often (retrieval as a proposer: He, Zhong, Cai, Lee, He, "REST: Retrieval-Based
// Speculative Decoding", 2023). REST's suffix array is read from the front and asked once for each length; here places
// are in the order of what stands *before* them, read backwards, so that one search finds the longest match of any
// length.
//
// A file is, all numbers little-endian:
//   8 bytes "IBIDTEXT", u32 version 1, u32 V, u64 n, u32 length of the name, u32 0,
//   32 bytes digest of the vocabulary, 64 bytes name of the model, zeros after it,
//   32 bytes SHA-256 of all before and all after it,
//   i32 [n] tokens, where -1 ends a text, u32 [n] all places, ordered by the kMaxMatch tokens before them.
//
// Mapped read-only. open() reads it once and checks all of it; what is read later is checked again where it is used,
// for another program may write into a file meanwhile: then drafts are worse, and nothing out of bounds is read. Of a
// file that is cut short there are none any more. Any thread.
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

// How a text may go on.
struct StoreDraft {
  int32_t match_len = 0;  // tokens of the text's end that it was found by; 0: nothing was
  std::vector<TokenId> tokens;
  // Of each token, the part of the places which agreed so far that go on with it.
  std::vector<float> share;
  void clear() { match_len = 0, tokens.clear(), share.clear(); }
};

// Of all tokens' spellings, in their order.
Sha256Digest vocabulary_digest(const Vocabulary& vocabulary);

class TextStore {
 public:
  static constexpr int32_t kMaxMatch = 32;    // tokens; a longer match is one of so many
  static constexpr int32_t kMaxSamples = 64;  // places that are asked how they go on
  static constexpr int64_t kMaxTokens = int64_t{1} << 30;
  static constexpr TokenId kTextEnd = TokenId::kNone;

  // kNotFound, kUnavailable: the file cannot be read; kInvalid: it is no store, or a damaged one; kUnsupported: of
  // another version, or of another vocabulary.
  static Result<std::shared_ptr<const TextStore>> open(const std::string& path, const Vocabulary& vocabulary);

  // The places in the order whose last `len` tokens before them are the text's last ones: [first, first + n).
  struct Match {
    int32_t len = 0;
    int64_t first = 0, n = 0;
  };
  // The longest end of `text` that occurs. At most 3 (log2(n) + 1) comparisons of at most kMaxMatch tokens.
  Match find(std::span<const TokenId> text) const;
  // What follows there most often, at most max_tokens, as long as any goes on; of several, what the first ones say. Of
  // more than kMaxSamples places, as many that lie evenly among them are asked. At most kMaxSamples * max_tokens tokens
  // are read.
  void draft(std::span<const TokenId> text, int32_t max_tokens, StoreDraft& out) const;

  int64_t n_tokens() const { return n_; }
  int64_t bytes() const { return static_cast<int64_t>(file_.bytes().size()); }  // of the file, all of which is read
  const std::string& path() const { return file_.path(); }
  // The token at a place; kTextEnd after the end, at a text's end, and for what is no id.
  TokenId token(int64_t place) const;
  // The place that is the i-th in the order.
  int64_t place(int64_t i) const;

 private:
  TextStore(MappedFile file, int64_t n, int32_t vocab_size) : file_(std::move(file)), n_(n), vocab_size_(vocab_size) {}
  template <typename Before>
  int64_t partition_point(Before before) const;

  MappedFile file_;
  int64_t n_;
  int32_t vocab_size_;
};

// Makes such a file. Holds eight bytes for each token, and as much again for a vocabulary as its counts take.
class TextStoreWriter {
 public:
  // Takes at most max_tokens, texts' ends included.
  explicit TextStoreWriter(int64_t max_tokens);
  // Tokens of the text that is being added. False where there is no room for all of them: then those that had room are
  // taken, and nothing is from then on.
  bool add(std::span<const TokenId> tokens);
  void end_text();
  int64_t n_tokens() const { return static_cast<int64_t>(tokens_.size()); }  // texts' ends included
  int64_t n_texts() const { return n_texts_; }

  // Orders the places and writes the file beside `path`, then renames it. `name`: of the model, for sentences.
  // kInvalid: no token was added, or one is not in the vocabulary; kUnavailable: it cannot be written.
  Status write(const std::string& path, const Vocabulary& vocabulary, std::string_view name);

 private:
  std::vector<uint32_t> ordered_places(int32_t vocab_size) const;

  size_t max_tokens_;
  std::vector<TokenId> tokens_;
  int64_t n_texts_ = 0;
  bool is_full_ = false;
};

}  // namespace ibid
