#include "cache/durable_index.h"

#include <algorithm>

#include "base/check.h"

namespace ibid {

void DurableIndex::found(const DurableEntry& entry) {
  if (contains(entry.key)) return;
  add(entry);
  try {
    written(entry.key);
  } catch (const std::bad_alloc&) {
    remove(entry.key);
    throw;
  }
  use_ = std::max(use_, entry.age);
}

void DurableIndex::set_now(int64_t now) { use_ = std::max(use_, now / kUse * kUse); }

bool DurableIndex::is_there(const DurableKey& key) const {
  const auto it = entries_.find(key);
  return it != entries_.end() && it->second.is_written;
}

bool DurableIndex::touch(const DurableKey& key, int64_t age, int64_t far) {
  const auto it = entries_.find(key);
  if (it == entries_.end() || !it->second.is_written || it->second.age >= age) return false;
  const int64_t before = it->second.age;
  auto node = by_age_.extract({before, key});  // moved, not made again: nothing is allocated
  node.value().first = age;
  by_age_.insert(std::move(node));
  it->second.age = age;
  return age - before >= far;
}

std::optional<DurableKey> DurableIndex::evict_for(int64_t bytes, bool& fits) {
  fits = bytes_ + bytes <= max_bytes_;
  if (fits || by_age_.empty()) return std::nullopt;
  const DurableKey key = by_age_.begin()->second;
  remove(key);
  return key;
}

void DurableIndex::add(const DurableEntry& entry) {
  CHECK(entries_.emplace(entry.key, Known{entry.bytes, entry.age}).second, "a block is kept once");
  bytes_ += entry.bytes;
}

void DurableIndex::written(const DurableKey& key) {
  const auto it = entries_.find(key);
  if (it == entries_.end() || it->second.is_written) return;
  by_age_.emplace(it->second.age, key);
  it->second.is_written = true;
}

void DurableIndex::remove(const DurableKey& key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return;
  if (it->second.is_written) by_age_.erase({it->second.age, key});
  bytes_ -= it->second.bytes;
  entries_.erase(it);
}

void DurableIndex::self_check() const {
  int64_t bytes = 0;
  size_t n_there = 0;
  for (const auto& [key, known] : entries_) {
    bytes += known.bytes;
    n_there += known.is_written;
    CHECK(known.is_written == by_age_.contains({known.age, key}), "an entry and its age disagree");
  }
  CHECK(bytes == bytes_ && n_there == by_age_.size(), "the index's counts are wrong");
}

}  // namespace ibid
