// StoredResponses: answers of /v1/responses that can be asked for again, and gone on from. Bounded in bytes and in
// time: of the tenant that has most, the oldest go first. One belongs to the tenant that made it. From any thread.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/json.h"

namespace ibid {

struct StoredResponse {
  std::string id, tenant;
  std::string response;  // as JSON, when it has ended
  Json::Array input;     // its items, as they were given
  Json::Array messages;  // the conversation with the answer, as a chat has it, without instructions
  int64_t bytes() const;
};

class StoredResponses {
 public:
  StoredResponses(int64_t max_bytes, double max_age) : max_bytes_(max_bytes), max_age_(max_age) {}

  // `now`: seconds. One that is more than a sixteenth of all is not kept.
  void put(std::shared_ptr<const StoredResponse> response, double now);
  std::shared_ptr<const StoredResponse> find(std::string_view id, std::string_view tenant, double now);
  bool erase(std::string_view id, std::string_view tenant);
  int64_t bytes() const;

 private:
  struct Kept {
    std::shared_ptr<const StoredResponse> response;
    double since = 0;
    int64_t bytes = 0;
  };
  using Place = std::list<Kept>::iterator;
  void drop(Place place);
  void make_room(int64_t bytes, const std::string& tenant);

  const int64_t max_bytes_;
  const double max_age_;
  mutable std::mutex mutex_;
  std::list<Kept> kept_;  // the oldest first
  std::unordered_map<std::string, Place> places_;
  int64_t bytes_ = 0;
};

}  // namespace ibid
