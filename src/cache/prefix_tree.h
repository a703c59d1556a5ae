// PrefixTree: which prefixes are known, and where their bytes lie. A node is a prefix: up to B tokens after its
// parent's (fewer only where it has no children: an unfinished tail). It has an id of its own and a residence: in each
// tier at most one block that holds its bytes; in one at least, else it would be no node. Moving bytes between tiers
// changes a residence and nothing else.
//
// Two indexes over (parent, tokens): a keyed 128-bit hash finds the equal child, an order finds the child that agrees
// longest. The hash only points; tokens and parent are compared in full on a hit, so a collision costs time and nothing
// else. Most nodes have one child, and that one needs no place in the order: its parent names it.
//
// A node's parent is a node or a scope (all of docs/design.md section 5, law 5, besides the tokens). A sequence that
// refers to a block refers to all before it and releases them last first, so in a pool's list children stand before
// parents and eviction is leaf first. Where that does not hold (blocks that a sliding window has passed), forgetting a
// node forgets what hangs below it.
//
// A node holds snapshots of a recurrent model's state (state_pool.h), each after some of its tokens. They are evicted
// apart from blocks, go with their node, and stay where a longer node takes its place. Of such a model, nothing can go
// on from a node without children and without a snapshot: its blocks are evicted before all that hold other nodes, and
// then its parent's where that is such a node too. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/block_pool.h"
#include "cache/cache_scope.h"
#include "cache/prefix_hash.h"
#include "cache/prefix_observer.h"
#include "cache/state_pool.h"
#include "cache/tier.h"

namespace ibid {

// One pool a tier.
using BlockPools = std::array<BlockPool, kTiers>;

class PrefixTree {
 public:
  // `pools` and `states` outlive the tree, which sets their blocks' nodes. block_len is B. Null: no states.
  PrefixTree(BlockPools& pools, int32_t block_len, PrefixHash hash = PrefixHash(), StatePool* states = nullptr);

  // Scopes are counted: what holds one keeps its id valid. Nodes hold theirs. hold() changes nothing where it throws
  // for want of memory; letting go and forgetting allocate nothing.
  ScopeId hold(const CacheScope& scope);
  void hold_again(ScopeId scope) {
    ++scopes_[static_cast<size_t>(raw(scope))].n_holders;
  }  // one more, of one that is held
  void let_go(ScopeId scope);

  // Finds the longest known beginning of `tokens` and appends its nodes to `path`, whatever tier they lie in. Returns
  // how many tokens they hold: whole nodes and, where the next one agrees in part, that many more (a multiple of
  // `partial_step`; 0 means whole blocks only). Takes no reference: before the next call that changes the tree, the
  // caller does.
  int32_t match(ScopeId scope, std::span<const TokenId> tokens, int32_t partial_step, std::vector<NodeId>& path);

  // Of `parent`'s children (kNone: the scope's) that begin with some of these B tokens or fewer, the one with the
  // snapshot after the most of them, and how many; 0: there is none.
  std::pair<NodeId, int32_t> longest_state(ScopeId scope, NodeId parent, std::span<const TokenId> tokens) const;

  // Makes the device's `block` (completely written up to tokens.size(), in use) findable after `parent` (kNone: first
  // of the scope). Returns the node that stands for these tokens; where another one does already, `block` stays out of
  // the tree. A shorter node of the same block gives way. kNone, and nothing new to be found, where `parent` is no node
  // or has no room below it, or for want of memory.
  NodeId publish(ScopeId scope, NodeId parent, std::span<const TokenId> tokens, BlockId block);

  // The node's bytes lie in this block of `tier` too; or no longer in that tier, with at least one left.
  void settle(NodeId node, Tier tier, BlockId block);
  void leave(NodeId node, Tier tier);
  // Forgets the node and all below it; their blocks keep their references.
  void forget(NodeId node);

  // Hears all changes from now on; outlives the tree's changes. Null: no one.
  void observe(PrefixObserver* observer) { observer_ = observer; }

  int32_t n_nodes() const { return n_nodes_; }
  int64_t n_holders() const;                              // of scopes, nodes not counted
  int64_t n_collisions() const { return n_collisions_; }  // hash equal, tokens or parent not
  // Of a node: its tokens, the node before it (kNone: a scope is), and its block in a tier (kNone: none).
  std::span<const TokenId> tokens_of(NodeId node) const;
  // Of a scope that is held: CacheScope::spelled().
  std::string_view spelled(ScopeId scope) const { return scopes_[static_cast<size_t>(raw(scope))].spelled; }
  NodeId parent_of(NodeId node) const { return NodeId{at(raw(node)).parent < 0 ? -1 : at(raw(node)).parent}; }
  BlockId block_of(NodeId node, Tier tier) const { return at(raw(node)).blocks[raw_tier(tier)]; }
  // Of a whole node: what stands for its prefix, tokens and scope, in this process; of others 0.
  uint64_t hash_of(NodeId node) const { return at(raw(node)).hash.low; }
  bool is_whole(NodeId node) const { return is_node(node) && is_whole(raw(node)); }
  // Of a node without a parent: CacheScope::spelled().
  std::string_view scope_of(NodeId node) const { return spelled(ScopeId{~at(raw(node)).parent}); }
  // The first tier that has its bytes.
  Tier tier_of(NodeId node) const;
  // Asks for the memory that forgetting this block's node, and the next one's after it, will touch.
  void prefetch(const BlockPool& pool, BlockId block) const;
  bool is_node(NodeId node) const { return node != NodeId::kNone && at(raw(node)).len > 0; }
  void self_check() const;

 private:
  struct Node {
    PrefixHash::Value hash;  // of whole blocks; others are found by order alone
    int32_t parent = 0;      // a node, or ~scope
    int32_t next = -1;       // in the bucket, or in the list of unused ones
    int32_t n_children = 0;
    int32_t only_child = -1;  // the child that stands in no order; -1: there is none, or all children stand in it
    int32_t len = 0;          // tokens; 0: unused
    std::array<BlockId, kTiers> blocks = {BlockId::kNone, BlockId::kNone};
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
  Node& at(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  const Node& at(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  bool is_whole(int32_t node) const { return at(node).len == block_len_; }
  Probe probe(int32_t node) const { return {at(node).parent, tokens_of(NodeId{node})}; }
  const PrefixHash::Value& hash_of(int32_t parent) const;
  int32_t& bucket(const PrefixHash::Value& hash) { return buckets_[hash.low & (buckets_.size() - 1)]; }
  int32_t find(int32_t parent, const PrefixHash::Value& hash, std::span<const TokenId> tokens);
  // The child that agrees longest with `tokens`, and in how many; ties to the lower in order.
  std::pair<int32_t, int32_t> nearest(int32_t parent, std::span<const TokenId> tokens) const;
  int32_t known(int32_t parent, const PrefixHash::Value& hash, std::span<const TokenId> tokens);
  int32_t insert(int32_t parent, const PrefixHash::Value& hash, std::span<const TokenId> tokens);
  void forget_shorter(int32_t node);
  void weigh(int32_t node);
  void put_in_order(int32_t node);
  void take_out_of_order(int32_t node);
  int32_t first_child(int32_t node) const;
  void remove(int32_t node);

  BlockPools* pools_;
  StatePool* states_;  // null: none
  PrefixObserver* observer_ = nullptr;
  int32_t block_len_;
  PrefixHash hash_;
  int64_t n_collisions_ = 0;
  int32_t n_nodes_ = 0;
  std::vector<Node> nodes_;        // as many as all tiers have blocks
  std::vector<TokenId> tokens_;    // [nodes, B]
  int32_t first_unused_ = -1;      // of nodes_, linked by next
  std::vector<int32_t> buckets_;   // first node of each; a power of two of them
  std::set<int32_t, Less> order_;  // but only children of nodes
  std::vector<Scope> scopes_;
  std::vector<int32_t> free_scopes_;
  std::unordered_map<std::string, int32_t> scope_ids_;
};

}  // namespace ibid
