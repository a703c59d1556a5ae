// DurableKey: the name of a whole block wherever it lies, in this process or on a disk that outlives it. SHA-256,
// chained:
//
//   of a scope   SHA-256('S', u64 length of layout, layout, scope)
//   of a block   SHA-256('B', parent's key, tokens)
//   of a state   SHA-256('T', key of the block before, tokens after that block)
//
// The layout identifies what the bytes of a block and of a state are (kernels/kv_layout.h); tokens are little-endian
// 32-bit ids. A state of a recurrent model is named by the tokens that it stands after: those of whole blocks by the
// last one's key (of the scope: there is none), then at least one and at most a block.
//
// A key therefore stands for everything that the bytes depend on and for who may share them (docs/design.md section 5,
// law 5): all tokens before and all fields of CacheScope, the tenant's salt among them. No one can make two equal ones,
// nor find one without knowing the salt.
//
// The hash of the tree (prefix_hash.h) is faster, and its key is this process's own: it points, this proves.
#pragma once

#include <span>
#include <string_view>

#include "base/ids.h"
#include "base/sha256.h"

namespace ibid {

using DurableKey = Sha256Digest;

DurableKey durable_key_of_scope(std::string_view layout, std::string_view spelled);
DurableKey durable_key_of_block(const DurableKey& parent, std::span<const TokenId> tokens);
DurableKey durable_key_of_state(const DurableKey& parent, std::span<const TokenId> tokens);

}  // namespace ibid
