// Admission of requests. A request is checked wholly where it enters, once and on its own thread, so that nothing in it
// can fail a step later; may_wait() bounds the queue.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "engine/state/request.h"
#include "sample/sampler.h"
#include "worker/forward_pass.h"

namespace ibid {

inline constexpr int32_t kMaxChoices = 128;

// A request that has been checked, with the sampler of all its choices. Made by admit() alone.
class AdmittedRequest {
 public:
  const Request& operator*() const { return *request_; }
  const Request* operator->() const { return request_.get(); }
  const std::shared_ptr<const Request>& request() const { return request_; }
  const std::shared_ptr<const Sampler>& sampler() const { return sampler_; }
  // With which a choice draws its first token, or the first one after Request::resume.
  SamplerState initial_state(int32_t choice) const;
  // Why the answer was over with the last token of Request::resume, kNone if it was not: known once the engine has
  // taken the request, or given before that by a replay, whose engine may have no text to find the end in.
  FinishReason over() const { return over_; }
  void set_over(FinishReason reason) { over_ = reason; }

 private:
  friend Result<AdmittedRequest> admit(Request request, const ModelFacts& model, bool has_text);
  AdmittedRequest(std::shared_ptr<const Request> request, std::shared_ptr<const Sampler> sampler,
                  std::optional<uint32_t> grammar)
      : request_(std::move(request)), sampler_(std::move(sampler)), grammar_(grammar) {}
  std::shared_ptr<const Request> request_;
  std::shared_ptr<const Sampler> sampler_;
  std::optional<uint32_t> grammar_;  // the state after Request::resume; none: the initial one
  FinishReason over_ = FinishReason::kNone;
};

// An error names the field at fault. From any thread; changes nothing but the request's own matcher. `has_text`: there
// is a tokenizer to find stop strings with.
Result<AdmittedRequest> admit(Request request, const ModelFacts& model, bool has_text);

// Whether further sequences may wait: `n_now` wait, and with these it would be `n_then`. A request with more choices
// than may wait is admitted if none waits. One rule for the engine and for the thread before it: the thread's count is
// never below the engine's, so an admitted request is not refused later.
Status may_wait(int32_t n_now, int32_t n_then, int32_t max_waiting);

}  // namespace ibid
