// What replicas are given of each other: `resume`, the first part of an answer, and `kv_transfer_params`
// (docs/users/replicas.md).
#include <algorithm>

#include "base/quoted.h"
#include "server/fields/read_fields.h"

namespace ibid {

Status read_resume(ApiRequest& request, const Json& value, const ApiLimits&) {
  if (value.object() == nullptr) return wrong_value("resume", "an object such as {\"token_ids\": [7, 12]}", value);
  ResumeFields& resume = request.resume.emplace();
  bool has_ids = false;
  for (const auto& [key, what] : *value.object()) {
    if (what.is_null()) continue;
    const std::string where = "resume." + shown(key, 64);
    if (key == "token_ids") {
      ASSIGN_OR_RETURN(resume.token_ids, read_token_ids(what, where));
      has_ids = true;
    } else if (key == "mirostat_mu") {
      ASSIGN_OR_RETURN(const double mu, read_number(what, -1e6, 1e6, false, where));
      resume.mirostat_mu = static_cast<float>(mu);
    } else if (key == "model_digest" || key == "system_fingerprint") {
      if (what.string() == nullptr) return wrong_value(where, "a text", what);
      (key == "model_digest" ? resume.model_digest : resume.fingerprint) = *what.string();
    } else if (key == "outputs") {
      if (what.boolean() == nullptr) return wrong_value(where, "true or false", what);
      resume.as_outputs = *what.boolean();
    } else {
      return unsupported(where + " is not served; leave it out.", where);
    }
  }
  if (!has_ids) return invalid("resume.token_ids is missing; it must be an array of token ids.", "resume.token_ids");
  return {};
}

// Of a prefill's members one changes its answer; a decode's are those that a prefill's answer had, of any engine.
Status read_kv_transfer(ApiRequest& request, const Json& value, const ApiLimits&) {
  if (value.object() == nullptr)
    return wrong_value("kv_transfer_params", "an object such as {\"do_remote_decode\": true}", value);
  const Json* decodes_elsewhere = value.find("do_remote_decode");
  if (decodes_elsewhere == nullptr || decodes_elsewhere->is_null()) return {};
  if (decodes_elsewhere->boolean() == nullptr)
    return wrong_value("kv_transfer_params.do_remote_decode", "true or false", *decodes_elsewhere);
  request.is_prefill = *decodes_elsewhere->boolean();
  return {};
}

// Whether there is one answer, of which another replica would have had the same tokens. What belongs to the prompt was
// sent with the first part.
Status check_resume(ApiRequest& request) {
  if (request.is_resumable && (std::max(request.n, request.best_of) != 1 || request.prompts.size() > 1)) {
    return unsupported("resumable is of one choice of one prompt: leave n and best_of out.", "resumable");
  }
  if (!request.resume) return {};
  if (std::max(request.n, request.best_of) != 1) {
    return unsupported("resume is of one choice: leave n and best_of out, and give choice i of an answer seed + i.",
                       "resume");
  }
  if (request.prompts.size() > 1) return unsupported("resume is of one prompt, and there are several.", "resume");
  if (!request.has_seed)
    return invalid("resume needs seed: what follows is drawn with the answer's, which the answer states.", "seed");
  request.echo = false;
  request.prompt_logprobs = -1;
  if (request.resume->as_outputs) request.stream = true;
  return {};
}

}  // namespace ibid
