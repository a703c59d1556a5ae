// MergeTable: the merges of a BPE vocabulary, from spellings to ids. Look-ups run in blocks, so that they wait for
// memory together: such waits are most of the time to load a large vocabulary.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/token_map.h"

namespace ibid {

class MergeTable {
 public:
  struct Fault {
    size_t rank;
    std::string_view left, right;  // as given to add()
    const char* why;
  };

  // map must outlive the table. prefix: what continuing pieces are spelled with, left out where two are joined.
  MergeTable(const TokenMap& map, std::string prefix, size_t n_expected) : map_(map), prefix_(std::move(prefix)) {
    merges_.reserve(n_expected);
  }
  // The next merge in order of rank. Both texts must stay where they are until a kBlock-th call after this one, or
  // finish(). An error is reported by then; after it the table must not be used.
  std::optional<Fault> add(std::string_view left, std::string_view right) {
    waiting_[n_waiting_] = {left, right, {}, 0, 0, 0};
    return ++n_waiting_ == kBlock ? look_up() : std::nullopt;
  }
  std::optional<Fault> finish() { return look_up(); }
  std::vector<Merge> take() { return std::move(merges_); }
  size_t n_added() const { return merges_.size() + n_waiting_; }

  static constexpr size_t kBlock = 32;

 private:
  struct Waiting {
    std::string_view left, right, tail;
    uint64_t left_hash, right_hash, both_hash;
  };
  std::optional<Fault> look_up();

  const TokenMap& map_;
  std::string prefix_;
  std::array<Waiting, kBlock> waiting_ = {};
  size_t n_waiting_ = 0;
  std::vector<Merge> merges_;
};

}  // namespace ibid
