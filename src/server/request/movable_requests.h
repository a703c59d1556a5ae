// MovableRequests: the requests under way that can be moved to another replica (docs/users/replicas.md). Moving one
// ends it here and makes its snapshot: its body, with what resumes its answer after the tokens that its client has been
// given. Nothing of the cache is in it. Safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "server/request/mailbox.h"

namespace ibid {

struct MovableRequest {
  std::string id;          // of its answer
  std::string request_id;  // X-Request-Id
  std::string tenant;
  std::string path;                 // of its API
  std::string body;                 // as it came
  bool has_options = false;         // the API has the seed in `options`
  uint64_t seed = 0;                // as given, or chosen here
  std::string fingerprint, digest;  // of this replica and its model
  std::vector<TokenId> resumed;     // with which it came
  bool uses_mirostat = false;
  float mirostat_mu = 0;  // after these
  RequestId request{};    // of the engine
  std::shared_ptr<Mailbox> mailbox;
  std::function<void()> cancel;  // ends it in the engine; does not wait
};

class MovableRequests {
 public:
  void add(MovableRequest request);
  void remove(const std::string& id);  // nothing if it is not there
  // By the id of its answer or its X-Request-Id, of the tenant's own. Its client's answer ends with an error then.
  // Errors: kInvalid: there is none, or all of its answer has been given.
  Result<std::string> move(std::string_view id, std::string_view tenant, const JsonLimits& limits);

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, MovableRequest> requests_;
};

}  // namespace ibid
