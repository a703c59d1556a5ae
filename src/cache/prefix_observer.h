// PrefixObserver: hears where the whole blocks of a prefix tree lie, as that changes. On the tree's thread; called
// within its changes, so it reads the tree and changes nothing there, does not wait and throws nothing.
#pragma once

#include "cache/tier.h"

namespace ibid {

class PrefixTree;

class PrefixObserver {
 public:
  virtual ~PrefixObserver() = default;
  // The node, which is whole, has its bytes in this tier from now on; parents before their children.
  virtual void settled(const PrefixTree& tree, NodeId node, Tier tier) noexcept = 0;
  // It had them there until now.
  virtual void left(const PrefixTree& tree, NodeId node, Tier tier) noexcept = 0;
  // A step of the engine is over.
  virtual void stepped() noexcept {}
};

}  // namespace ibid
