// MovableRequests: the requests under way that can go on on another replica (docs/users/replicas.md), as their
// snapshots: the body, with what resumes the answer after the tokens that its client has been given. Nothing of the
// cache is in it. Safe from any thread.
//
// A client may move one, which ends it here. A server that drains moves them all (routes/request_mover.h): the
// replica's outputs then take the place of the engine's in the request's mailbox, and its client sees one answer. Or it
// ends those whose clients take what resumes them as an end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "server/request/mailbox.h"

namespace ibid {

struct MovableRequest {
  std::string id;          // of its answer
  std::string request_id;  // X-Request-Id
  std::string tenant;
  std::string path;                                       // of its API
  std::string body;                                       // as it came
  std::vector<std::pair<std::string, std::string>> keys;  // headers by which its client is known
  bool has_options = false;                               // the API has the seed in `options`
  bool is_resumable = false;                              // its client takes what resumes it as an end
  bool may_leave = true;                                  // its client may move it
  uint64_t seed = 0;                                      // as given, or chosen here
  std::string fingerprint, digest;                        // of this replica and its model
  std::vector<TokenId> resumed;                           // with which it came
  bool uses_mirostat = false;
  float mirostat_mu = 0;       // after these
  bool scores_prompt = false;  // its first output has the prompt's log-probabilities
  int32_t max_tokens = 0;      // that may still come
  int32_t vocab_size = 0, n_top = 0;
  RequestId request{};  // of the engine
  std::shared_ptr<Mailbox> mailbox;
  std::function<void(RequestId)> cancel;  // ends it in the engine, which is not heard any more; does not wait
  std::function<RequestId()> next_id;
  std::function<double()> now;  // on the engine's clock
  // Begins a snapshot's request here, whose outputs are the mailbox's from then on.
  std::function<Status(const MovableRequest& request, const std::string& body)> begin_here;

  // The list's own.
  double not_before = 0;  // when another replica may be asked, on the steady clock; infinite: it has been
};

// A request on its way to another replica.
struct RequestMove {
  std::string id, request_id, path, body;
  std::vector<std::pair<std::string, std::string>> keys;
  int32_t max_tokens = 0, vocab_size = 0, n_top = 0;
  size_t n_tokens = 0, n_text = 0;  // that its client had, of tokens and bytes of text, where the snapshot was made
  RequestId source{};               // of the outputs that come from there, once it is handed over
  std::weak_ptr<Mailbox> mailbox;   // gone: so is the client
  std::function<double()> now;
};

class MovableRequests {
 public:
  void add(MovableRequest request);
  void remove(const std::string& id);  // nothing if it is not there
  // By the id of its answer or its X-Request-Id, of the tenant's own. Its client's answer ends with an error then.
  // Errors: kInvalid: there is none, or all of its answer has been given.
  Result<std::string> move(std::string_view id, std::string_view tenant, const JsonLimits& limits);

  // The next one that no other replica has been asked for, `now` on the steady clock. The engine goes on with it.
  std::optional<RequestMove> next_to_move(double now, const JsonLimits& limits);
  // The replica could not take it now: it may be asked again at `when`.
  void try_again(const std::string& id, double when);
  // The replica has begun: the engine ends it, and its outputs are those of move.source from now on. Returns what its
  // client has been given until then; nothing if the answer has ended.
  std::optional<Mailbox::Given> hand_over(RequestMove& move);
  // The replica has failed in the midst of it: it goes on here. Where it cannot, its answer ends with an error.
  Status take_back(const std::string& id, const JsonLimits& limits);
  // Ends those whose clients have asked for it, with an error that has what resumes them. Returns how many.
  int end_resumable();

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, MovableRequest> requests_;
};

}  // namespace ibid
