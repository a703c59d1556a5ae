// Stops: the strings and ids that end an answer. StopSet is compiled once per request (one Aho-Corasick automaton
// over the bytes of all strings; Aho and Corasick, CACM 18(6), 1975); StopMatcher is a sequence's place in it.
//
// The stop whose last byte comes first wins; if several end at the same byte, the longest. So the result depends on the
// text alone, not on how tokens or packets cut it, and a stop is found in all its tokenisations. Exactly the longest
// suffix of the text that is a prefix of a stop is held back.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace ibid {

// Immutable; shared by the sequences of a request and by threads.
class StopSet {
 public:
  static constexpr size_t kMaxStrings = 65536;
  static constexpr size_t kMaxBytes = 1 << 20;  // of all strings together

  // Refuses an empty string, one that is not UTF-8, and more than the limits above. Equal strings count as the first.
  // `include_stop` keeps the stop string at the end of the text (a caller reads it for a stop id's text).
  static Result<std::shared_ptr<const StopSet>> compile(std::vector<std::string> strings, std::vector<TokenId> ids = {},
                                                        bool include_stop = false);

  bool empty() const { return strings_.empty() && ids_.empty(); }
  bool include_stop() const { return include_stop_; }
  bool is_stop(TokenId id) const;
  const std::vector<std::string>& strings() const { return strings_; }
  const std::vector<TokenId>& ids() const { return ids_; }  // ascending

 private:
  friend class StopMatcher;
  struct Node {
    int32_t fail = 0;     // the longest proper suffix that is a node
    int32_t stop = -1;    // the longest stop that ends here
    int32_t string = -1;  // this node spells strings_[string].substr(0, depth)
    int32_t depth = 0;
    int32_t first_edge = 0;  // edges_[first_edge .. + n_edges), ascending by byte
    int32_t n_edges = 0;
  };
  struct Edge {
    uint8_t byte;
    int32_t node;
  };
  StopSet() = default;
  int32_t child(int32_t node, uint8_t byte) const;  // -1: none
  int32_t step(int32_t node, uint8_t byte) const;
  std::string_view spelling(int32_t node) const;

  std::vector<std::string> strings_;
  std::vector<TokenId> ids_;  // ascending
  bool include_stop_ = false;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::array<int32_t, 256> root_ = {};
};

class StopMatcher {
 public:
  explicit StopMatcher(std::shared_ptr<const StopSet> set) : set_(std::move(set)) {}

  // Takes the next piece of text, appends to `out` what may be sent. Returns the index of the stop string that ends
  // the answer here: then `out` has all of the text before it (and the stop itself with include_stop), what follows it
  // is dropped, and further calls add nothing.
  std::optional<int> push(std::string_view text, std::string& out);
  // The answer ended for another reason: what was held back is text after all.
  void finish(std::string& out);

  // Text that is held back; a view into the set, valid while they live.
  std::string_view held() const { return set_->spelling(node_); }
  bool stopped() const { return stopped_; }
  const StopSet& set() const { return *set_; }

 private:
  std::shared_ptr<const StopSet> set_;
  int32_t node_ = 0;  // the held text is what this node spells, so it is the whole state
  bool stopped_ = false;
};

}  // namespace ibid
