// DurableIndex: which blocks lie in a store that outlives the process, by their keys, and which goes first when its
// bytes are used up. It counts; the store (worker/block_folder.h) has the bytes and lags a little. An entry is
//
//   being written   add() until written(): counted, not to be found
//   there           to be found, and to be evicted
//
// Ages: an entry is as old as the use that it was last part of, and of one use the later blocks of a sequence are older
// than the earlier ones, so that what goes first is a leaf. An age is a number that grows with each use; the store
// keeps it as a file's time of modification in nanoseconds, so that ages survive a restart.
//
// Pure: what it knows is a function of the calls. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "cache/durable_key.h"

namespace ibid {

struct DurableEntry {
  DurableKey key = {};
  int64_t bytes = 0;
  int64_t age = 0;
};

class DurableIndex {
 public:
  explicit DurableIndex(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // One that was found when the store was opened; it may be too much (over_full()). Throws std::bad_alloc unchanged,
  // as add() does.
  void found(const DurableEntry& entry);
  // What begins a new use; later blocks of a sequence get ages below it. `now`: nanoseconds, of any clock.
  void set_now(int64_t now);
  int64_t next_use() { return use_ += kUse; }
  static int64_t age_of(int64_t use, int32_t i_block) { return use + kUse - 1 - std::min<int64_t>(i_block, kUse - 1); }

  bool contains(const DurableKey& key) const { return entries_.contains(key); }  // there, or being written
  bool is_there(const DurableKey& key) const;
  // Sets the age to this one if that is younger. True if it was older by `far` at least: then the store should be
  // updated.
  bool touch(const DurableKey& key, int64_t age, int64_t far);
  // Room for so many bytes more: what must go first, one call after another, nothing when they fit. False in `fits`:
  // they never will.
  std::optional<DurableKey> evict_for(int64_t bytes, bool& fits);
  void add(const DurableEntry& entry);  // being written
  void written(const DurableKey& key);
  void remove(const DurableKey& key);  // nothing if it is not known

  int64_t n_entries() const { return static_cast<int64_t>(entries_.size()); }
  int64_t bytes() const { return bytes_; }
  int64_t max_bytes() const { return max_bytes_; }
  void self_check() const;  // CHECKs

 private:
  static constexpr int64_t kUse = 1'000'000;  // ages of one use: a millisecond of nanoseconds
  struct Hash {
    size_t operator()(const DurableKey& key) const {
      size_t out;
      std::memcpy(&out, key.data(), sizeof out);  // any part of SHA-256 is as good as all
      return out;
    }
  };
  struct Known {
    int64_t bytes = 0;
    int64_t age = 0;
    bool is_written = false;
  };

  int64_t max_bytes_;
  int64_t bytes_ = 0;
  int64_t use_ = 0;
  std::unordered_map<DurableKey, Known, Hash> entries_;
  std::set<std::pair<int64_t, DurableKey>> by_age_;  // of those that are there
};

}  // namespace ibid
