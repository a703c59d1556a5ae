#include "server/dialects/stored_responses.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace ibid {
namespace {

constexpr int64_t kMostOfOne =
    16;                          // parts of the whole that one response may be; a request copies what it goes on from
constexpr int64_t kEach = 1024;  // beside the texts
constexpr int64_t kEachValue = 128;  // of a tree, beside its texts

int64_t tree_bytes(const Json& json) {
  int64_t sum = kEachValue;
  if (json.string() != nullptr) sum += static_cast<int64_t>(json.string()->capacity());
  if (json.array() != nullptr) {
    for (const Json& item : *json.array()) sum += tree_bytes(item);
  }
  if (json.object() != nullptr) {
    for (const auto& [key, value] : *json.object()) sum += static_cast<int64_t>(key.capacity()) + tree_bytes(value);
  }
  return sum;
}

}  // namespace

int64_t StoredResponse::bytes() const {
  int64_t sum = kEach + static_cast<int64_t>(response.capacity());
  for (const Json::Array* list : {&input, &messages}) {
    for (const Json& item : *list) sum += tree_bytes(item);
  }
  return sum;
}

void StoredResponses::drop(Place place) {
  bytes_ -= place->bytes;
  places_.erase(place->response->id);
  kept_.erase(place);
}

// Of the tenant that would have most, the oldest go first: a tenant that stores much takes the room of its own.
void StoredResponses::make_room(int64_t bytes, const std::string& tenant) {
  std::map<std::string, int64_t> bytes_of;
  for (const Kept& kept : kept_) bytes_of[kept.response->tenant] += kept.bytes;
  bytes_of[tenant] += bytes;
  const auto most = [&] { return std::ranges::max_element(bytes_of, {}, [](const auto& t) { return t.second; }); };
  while (bytes_ + bytes > max_bytes_) {
    const auto largest = most();
    const auto oldest = std::ranges::find(kept_, largest->first,
                                          [](const Kept& k) -> const std::string& { return k.response->tenant; });
    if (oldest == kept_.end()) return;  // the new one alone, which is a small part of all
    largest->second -= oldest->bytes;
    drop(oldest);
  }
}

void StoredResponses::put(std::shared_ptr<const StoredResponse> response, double now) {
  const int64_t bytes = response->bytes();
  const std::lock_guard lock(mutex_);
  if (bytes > max_bytes_ / kMostOfOne) return;
  while (!kept_.empty() && now - kept_.front().since > max_age_) drop(kept_.begin());
  if (bytes_ + bytes > max_bytes_) make_room(bytes, response->tenant);
  kept_.push_back({std::move(response), now, bytes});
  bytes_ += bytes;
  places_.insert_or_assign(kept_.back().response->id, std::prev(kept_.end()));
}

std::shared_ptr<const StoredResponse> StoredResponses::find(std::string_view id, std::string_view tenant, double now) {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(std::string(id));
  if (found == places_.end() || found->second->response->tenant != tenant) return nullptr;
  if (now - found->second->since > max_age_) return drop(found->second), nullptr;
  return found->second->response;
}

bool StoredResponses::erase(std::string_view id, std::string_view tenant) {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(std::string(id));
  if (found == places_.end() || found->second->response->tenant != tenant) return false;
  drop(found->second);
  return true;
}

int64_t StoredResponses::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace ibid
