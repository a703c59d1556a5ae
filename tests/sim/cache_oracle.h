// CacheOracle: the blocks that a cache of a given size would hold if requests came one after another, in plain sets and
// maps over the numbers of a workload's parts (blocks are parts). It implements the rules of docs/how_it_works.md
// independently of the code: longest match by whole blocks and within the next; copy before writing; unfinished tails;
// free blocks first, then leaves in the order of a rule. With the rule kLru it must equal the engine, to the token;
// with other rules it shows their gain.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "engine/workload.h"

namespace ibid::sim {

enum class Evict : uint8_t {
  kFifo,     // first in, first out
  kLru,      // least recently used: the engine's rule
  kLfu,      // least frequently used, then kLru
  kHitOnce,  // never hit before ever hit, then kLru
  kBelady,   // needed latest, by looking ahead: no rule can do better by whole blocks
};

class CacheOracle {
 public:
  CacheOracle(const Workload& workload, int32_t n_blocks, int32_t context_len, Evict rule);
  // Of the next request's prompt, how many tokens are found.
  int32_t ask();

 private:
  struct Node {  // one for each prefix that the workload ever has
    int32_t parent = -1;
    int32_t len = 0;  // tokens of it that are here; 0: it is not here
    int32_t n_children = 0;
    int32_t n_pins = 0;
    int64_t n_uses = 0, came = 0, released = 0;
    std::vector<int32_t> wanted_at;  // requests, descending: the next one stands last
  };
  using Key = std::pair<int64_t, int64_t>;
  Key key_of(const Node& node) const;
  void pin(int32_t node);
  void unpin(int32_t node);
  void list(int32_t node);  // if it may be evicted
  void unlist(int32_t node);
  void take();  // a block: a free one, or the first leaf's
  void forget(int32_t node);

  const Workload& workload_;
  int32_t block_len_, n_free_, context_len_;
  Evict rule_;
  std::vector<std::vector<int32_t>> paths_;  // of each request, a node for each part
  std::vector<Node> nodes_;
  std::set<std::pair<Key, int32_t>> leaves_;
  size_t next_ = 0;
  int64_t tick_ = 0;
};

}  // namespace ibid::sim
