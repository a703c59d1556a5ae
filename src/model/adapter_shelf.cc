#include "model/adapter_shelf.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/quoted.h"
#include "base/utf8.h"

namespace ibid {
namespace {

constexpr size_t kMaxName = 512;

bool is_name(std::string_view name) {
  const bool is_plain = std::ranges::none_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  return !name.empty() && name.size() <= kMaxName && is_plain && utf8::is_valid(name);
}

}  // namespace

Status AdapterShelf::load(const std::string& name, const std::string& path, bool replaces) {
  if (!is_name(name)) {
    return invalid("An adapter's name has 1 to 512 bytes of UTF-8 without control characters.", "lora_name");
  }
  const std::scoped_lock one_at_a_time(loading_);
  if (find(name) != nullptr && !replaces) {
    return invalid("The adapter " + in_quotes(name) + " is loaded already; unload it first, or load it in its place.",
                   "lora_name");
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const Adapter> adapter, read_(path));
  ASSIGN_OR_RETURN(std::shared_ptr<const PlacedAdapter> placed, table_.place(std::move(adapter)));
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  Entry entry{name, path, std::chrono::duration_cast<std::chrono::seconds>(now).count(), std::move(placed)};
  const std::scoped_lock lock(mutex_);
  const auto known = std::ranges::find(entries_, name, &Entry::name);
  if (known == entries_.end()) {
    entries_.push_back(std::move(entry));
  } else {
    std::swap(*known, entry);
  }
  return {};
}

Status AdapterShelf::unload(std::string_view name) {
  Entry gone;  // let go outside of the lock
  const std::scoped_lock lock(mutex_);
  const auto known = std::ranges::find(entries_, name, &Entry::name);
  if (known == entries_.end()) return not_found("There is no adapter " + in_quotes(name) + ".", "lora_name");
  std::swap(*known, gone);
  entries_.erase(known);
  return {};
}

std::shared_ptr<const PlacedAdapter> AdapterShelf::find(std::string_view name) const {
  const std::scoped_lock lock(mutex_);
  const auto known = std::ranges::find(entries_, name, &Entry::name);
  return known == entries_.end() ? nullptr : known->placed;
}

std::shared_ptr<const PlacedAdapter> AdapterShelf::find_digest(std::string_view digest) const {
  const std::scoped_lock lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.placed->adapter->digest() == digest) return entry.placed;
  }
  return nullptr;
}

std::vector<AdapterShelf::Entry> AdapterShelf::list() const {
  const std::scoped_lock lock(mutex_);
  std::vector<Entry> out = entries_;
  for (Entry& entry : out) entry.is_in_use = entry.placed.use_count() > 2;  // entries_ and the list hold one each
  return out;
}

}  // namespace ibid
