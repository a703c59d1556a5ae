// What the events are, and their bytes.
#include "server/observe/kv_events.h"

#include <bit>
#include <optional>
#include <string_view>

namespace ibid {
namespace {

constexpr const char* kMedia[kTiers] = {"GPU", "CPU"};  // vLLM's names of tiers

// MessagePack (https://msgpack.org), each value in its shortest form, as msgspec and msgpack-python write it.
class Packer {
 public:
  explicit Packer(std::string& out) : out_(out) {}
  void nil() { byte(0xc0); }
  void integer(uint64_t n) {
    if (n < 0x80) return byte(n);
    if (n <= 0xff) return byte(0xcc), bytes(n, 1);
    if (n <= 0xffff) return byte(0xcd), bytes(n, 2);
    if (n <= 0xffffffff) return byte(0xce), bytes(n, 4);
    byte(0xcf), bytes(n, 8);
  }
  void real(double x) { byte(0xcb), bytes(std::bit_cast<uint64_t>(x), 8); }
  void text(std::string_view s) { head(s.size(), 0xa0, 32, 0xd9), out_ += s; }
  void array(size_t n) { head(n, 0x90, 16, 0xdb); }
  void map(size_t n) { head(n, 0x80, 16, 0xdd); }

 private:
  void byte(uint64_t b) { out_ += static_cast<char>(b); }
  void bytes(uint64_t n, int n_bytes) {
    for (int i = n_bytes - 1; i >= 0; --i) byte(n >> (8 * i));
  }
  // n in the first byte below `most`; else a byte before it in 1 (of texts alone), 2 or 4 bytes.
  void head(size_t n, uint64_t first, size_t most, uint64_t longer) {
    if (n < most) return byte(first | n);
    if (longer == 0xd9 && n <= 0xff) return byte(longer), bytes(n, 1);
    if (n <= 0xffff) return byte(longer + 1), bytes(n, 2);
    byte(longer + 2), bytes(n, 4);
  }
  std::string& out_;
};

// An event's members in vLLM's order, as a map with their names or as an array after its tag.
class Members {
 public:
  Members(Packer& packer, const char* tag, size_t n, bool as_array) : packer_(packer), as_array_(as_array) {
    as_array ? packer.array(n + 1) : packer.map(n + 1);
    if (!as_array) packer.text("type");
    packer.text(tag);
  }
  Packer& next(const char* name) {
    if (!as_array_) packer_.text(name);
    return packer_;
  }

 private:
  Packer& packer_;
  bool as_array_;
};

void pack_hashes(Packer& packer, const std::vector<uint64_t>& hashes) {
  packer.array(hashes.size());
  for (const uint64_t hash : hashes) packer.integer(hash);
}

void pack_stored(Packer& packer, const KvEvent& event, int32_t block_len, bool as_array) {
  const bool has_extra = !event.salt.empty();
  Members members(packer, "BlockStored", 7 + has_extra, as_array);
  pack_hashes(members.next("block_hashes"), event.hashes);
  event.has_parent ? members.next("parent_block_hash").integer(event.parent) : members.next("parent_block_hash").nil();
  members.next("token_ids").array(event.tokens.size());
  for (const TokenId id : event.tokens)
    packer.integer(static_cast<uint64_t>(std::max(0, raw(id))));  // a picture's name is of this process alone
  members.next("block_size").integer(static_cast<uint64_t>(block_len));
  members.next("lora_id").nil();
  members.next("medium").text(kMedia[raw_tier(event.tier)]);
  members.next("lora_name").nil();
  if (!has_extra) return;
  members.next("extra_keys").array(event.hashes.size());
  packer.array(1);
  packer.text(event.salt);
  for (size_t i = 1; i < event.hashes.size(); ++i) packer.nil();
}

}  // namespace

std::string encode_kv_events(const KvEventBatch& batch, int32_t block_len, bool as_arrays) {
  std::string out;
  Packer packer(out);
  packer.array(3);
  packer.real(batch.time);
  packer.array(batch.events.size());
  for (const KvEvent& event : batch.events) {
    switch (event.kind) {
      case KvEvent::Kind::kStored:
        pack_stored(packer, event, block_len, as_arrays);
        break;
      case KvEvent::Kind::kRemoved: {
        Members members(packer, "BlockRemoved", 2, as_arrays);
        pack_hashes(members.next("block_hashes"), event.hashes);
        members.next("medium").text(kMedia[raw_tier(event.tier)]);
        break;
      }
      case KvEvent::Kind::kCleared:
        Members(packer, "AllBlocksCleared", 0, as_arrays);
    }
  }
  packer.integer(0);  // the data-parallel rank
  return out;
}

void add_stored(std::vector<KvEvent>& events, Tier tier, uint64_t hash, bool has_parent, uint64_t parent,
                std::span<const TokenId> tokens, std::string_view salt) {
  const bool extends = !events.empty() && events.back().kind == KvEvent::Kind::kStored && events.back().tier == tier &&
                       has_parent && events.back().hashes.back() == parent;
  if (!extends) {
    events.push_back({.kind = KvEvent::Kind::kStored,
                      .tier = tier,
                      .has_parent = has_parent,
                      .parent = has_parent ? parent : 0,
                      .salt = std::string(salt)});
  }
  events.back().hashes.push_back(hash);
  events.back().tokens.insert(events.back().tokens.end(), tokens.begin(), tokens.end());
}

void add_removed(std::vector<KvEvent>& events, Tier tier, uint64_t hash) {
  const bool extends = !events.empty() && events.back().kind == KvEvent::Kind::kRemoved && events.back().tier == tier;
  if (!extends) events.push_back({.kind = KvEvent::Kind::kRemoved, .tier = tier});
  events.back().hashes.push_back(hash);
}

}  // namespace ibid
