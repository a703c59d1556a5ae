// PrefixTree: which prefixes lie in the cache. Its nodes are full blocks, identified by their BlockId; the children of
// a node are the blocks that follow it. Two indexes over (parent, tokens): a keyed 128-bit hash finds the equal child,
// an order finds the child that agrees longest. The hash only points; tokens and parent are compared in full on a hit,
// so a collision costs time and nothing else.
//
// A node's parent is a node or a scope (all of docs/design.md section 5, law 5, besides the tokens). A sequence that
// refers to a block refers to all before it and releases them last first, so in the pool's list children stand before
// parents and eviction is leaf first. Where that does not hold (blocks released behind a sliding window), forgetting a
// node forgets what hangs below it. One thread.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/block_pool.h"
#include "cache/cache_scope.h"
#include "cache/prefix_hash.h"

namespace ibid {

class PrefixTree {
 public:
  // `pool` outlives the tree. block_len is B.
  PrefixTree(BlockPool& pool, int32_t block_len, PrefixHash hash = PrefixHash());

  // Scopes are counted: what holds one keeps its id valid. Nodes hold theirs. hold() changes nothing where it throws
  // for want of memory; letting go and forgetting allocate nothing.
  ScopeId hold(const CacheScope& scope);
  void let_go(ScopeId scope);

  // Finds the longest cached beginning of `tokens` and appends its blocks to `table`, each with a reference taken here.
  // Returns how many tokens they hold: whole blocks and, where the next block agrees in part, that many more (a
  // multiple of `partial_step`; 0 means whole blocks only): then the last block of the table is one to copy before
  // writing.
  int32_t match(ScopeId scope, std::span<const TokenId> tokens, int32_t partial_step, std::vector<BlockId>& table);

  // Makes `block` (full, completely written, in use) findable behind `parent` (kNone: first of the scope). Returns the
  // block that stands for these tokens: `block`, or the one that was there already; then the reference moves to that
  // one (the bytes are equal) and `block` is released. A parent that is no node leaves `block` unpublished, and so does
  // want of memory.
  BlockId publish(ScopeId scope, BlockId parent, std::span<const TokenId> tokens, BlockId block);

  // Forgets the node and all below it; their blocks keep their references.
  void forget(BlockId block);

  int32_t n_nodes() const { return static_cast<int32_t>(order_.size()); }
  int64_t n_holders() const;                              // of scopes, nodes not counted
  int64_t n_collisions() const { return n_collisions_; }  // hash equal, tokens or parent not
  // Of a node: its B tokens, and the node before it (kNone: a scope is).
  std::span<const TokenId> tokens_of(BlockId block) const;
  BlockId parent_of(BlockId block) const { return BlockId{node(raw(block)).parent < 0 ? -1 : node(raw(block)).parent}; }
  void self_check() const;

 private:
  struct Node {
    PrefixHash::Value hash;
    int32_t parent = 0;  // a block, or ~scope
    int32_t next = -1;   // in the bucket
    int32_t n_children = 0;
  };
  struct Scope {
    std::string spelled;
    PrefixHash::Value hash;
    int32_t n_holders = 0;
  };
  struct Probe {  // where a child with these tokens would stand in the order
    int32_t parent;
    std::span<const TokenId> tokens;
  };
  struct Less {
    using is_transparent = void;
    const PrefixTree* tree;
    bool operator()(int32_t a, int32_t b) const;
    bool operator()(int32_t a, const Probe& b) const;
  };
  Node& node(int32_t block) { return nodes_[static_cast<size_t>(block)]; }
  const Node& node(int32_t block) const { return nodes_[static_cast<size_t>(block)]; }
  Probe probe(int32_t block) const { return {node(block).parent, tokens_of(BlockId{block})}; }
  const PrefixHash::Value& hash_of(int32_t parent) const;
  int32_t& bucket(const PrefixHash::Value& hash) { return buckets_[hash.low & (buckets_.size() - 1)]; }
  int32_t find(int32_t parent, const PrefixHash::Value& hash, std::span<const TokenId> tokens);
  // The child that agrees longest with `tokens`, and in how many; ties to the lower in order.
  std::pair<int32_t, int32_t> nearest(int32_t parent, std::span<const TokenId> tokens) const;
  void remove(int32_t block);

  BlockPool* pool_;
  int32_t block_len_;
  PrefixHash hash_;
  int64_t n_collisions_ = 0;
  std::vector<Node> nodes_;       // [n_blocks]
  std::vector<TokenId> tokens_;   // [n_blocks, B]
  std::vector<int32_t> buckets_;  // first node of each; a power of two of them
  std::set<int32_t, Less> order_;
  std::vector<Scope> scopes_;
  std::vector<int32_t> free_scopes_;
  std::unordered_map<std::string, int32_t> scope_ids_;
};

}  // namespace ibid
