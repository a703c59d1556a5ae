// NodeReach: where the code points of a kind (TokenKind) lead from a node of an automaton, all of them at once: what
// lets masks take tokens of a kind whole. Computed for nodes and not for states, which share them; results are cached
// until cleared.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "sample/grammar/automaton.h"
#include "sample/grammar/token_trie.h"

namespace ibid::grammar {

inline constexpr uint32_t kAllCodes = kMaxCounted + 1;  // the largest count of code points
inline constexpr uint32_t kNoNode = ~0u, kManyNodes = ~0u - 1;

// For texts of one kind from one node: all with up to `all` code points stay in the rule, none with `none` or more
// does. `worst`: the longest way to the rule's end from where they lead.
struct Reach {
  uint32_t all = 0, none = 0, worst = 0;
};
// Where one code point of a kind leads from one node: nowhere (kNoNode), to several nodes, or to one; `is_all`: each of
// them leads somewhere.
struct Step {
  uint32_t to = kNoNode;
  bool is_all = false;
  bool dies() const { return to == kNoNode; }
  bool is_one() const { return is_all && to < kManyNodes; }
};

// Kinds for step() alone: all code points beyond ASCII but white space, and that.
inline constexpr size_t kNonAscii = kPlainKinds, kFarSpace = kPlainKinds + 1;

// Bytes that no token of the vocabulary has in plain code points do not count.
class NodeReach {
 public:
  NodeReach(const Automaton& automaton, const TokenTrie& trie) : automaton_(automaton), trie_(trie) {}
  Reach reach(uint32_t node, size_t kind);  // of counters: of the texts of their bodies
  Step step(uint32_t node, size_t kind);    // of a node that is written out
  void forget() { reaches_.clear(), steps_.clear(); }
  size_t bytes() const { return (reaches_.size() + steps_.size()) * (sizeof(Reach) + 40); }

 private:
  Reach search(uint32_t node, size_t kind);
  Reach reach_of_counter(uint32_t node, size_t kind);
  struct At {
    uint32_t node;
    uint8_t phase;  // how far inside a code point
    bool operator==(const At&) const = default;
  };

  const Automaton& automaton_;
  const TokenTrie& trie_;
  std::unordered_map<uint64_t, Reach> reaches_;  // by node << 4 | kind
  std::unordered_map<uint64_t, Step> steps_;
  std::vector<At> ahead_;
};

}  // namespace ibid::grammar
