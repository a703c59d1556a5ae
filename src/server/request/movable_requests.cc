#include "server/request/movable_requests.h"

#include <algorithm>

#include "base/json_writer.h"
#include "base/quoted.h"
#include "server/fields/body_parts.h"
#include "server/fields/parse_body.h"

namespace ibid {
namespace {

Json json_of(uint64_t n) { return n <= INT64_MAX ? Json(static_cast<int64_t>(n)) : Json(n); }

void put(Json& object, const std::string& name, Json value) {
  for (Json::Member& member : *object.object()) {
    if (member.first == name) return static_cast<void>(member.second = std::move(value));
  }
  set(object, name, std::move(value));
}

Json resume_of(const MovableRequest& r, const Mailbox::Given& given) {
  Json::Array ids;
  for (const std::vector<TokenId>* part : {&r.resumed, &given.tokens}) {
    for (const TokenId id : *part) ids.emplace_back(int64_t{raw(id)});
  }
  Json::Object resume = {{"token_ids", Json(std::move(ids))},
                         {"model_digest", Json(r.digest)},
                         {"system_fingerprint", Json(r.fingerprint)}};
  const float mu = given.tokens.empty() ? r.mirostat_mu : given.mirostat_mu;
  const bool has_mu = r.uses_mirostat && r.resumed.size() + given.tokens.size() > 0;
  if (has_mu) resume.emplace_back("mirostat_mu", Json(static_cast<double>(mu)));
  return Json(std::move(resume));
}

}  // namespace

void MovableRequests::add(MovableRequest request) {
  const std::lock_guard lock(mutex_);
  std::string id = request.id;
  requests_.insert_or_assign(std::move(id), std::move(request));
}

void MovableRequests::remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  requests_.erase(id);
}

// The lock is held throughout: what `cancel` refers to is there as long as the request is in the list.
Result<std::string> MovableRequests::move(std::string_view id, std::string_view tenant, const JsonLimits& limits) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(requests_, [&](const auto& entry) {
    const MovableRequest& r = entry.second;
    return r.tenant == tenant && (r.id == id || r.request_id == id);
  });
  if (found == requests_.end())
    return invalid("No request " + in_quotes(id, 128) + " is under way here that could be moved.", "id");
  MovableRequest& r = found->second;
  ASSIGN_OR_RETURN(Json body, parse_body(r.body, limits));
  const std::optional<Mailbox::Given> given =
      r.mailbox->stop(r.request, unavailable("The request was moved; its snapshot resumes it on another replica."));
  if (!given) return invalid("The answer of " + in_quotes(id, 128) + " has ended.", "id");
  r.cancel();
  if (r.has_options) {
    const Json* options = body.find("options");
    Json with_seed = options != nullptr && options->object() != nullptr ? *options : Json(Json::Object());
    put(with_seed, "seed", json_of(r.seed));
    put(body, "options", std::move(with_seed));
  } else {
    put(body, "seed", json_of(r.seed));
  }
  put(body, "resume", resume_of(r, *given));
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("object", "request.snapshot").field("id", r.id).field("path", r.path);
  json.key("request").value(body).end_object();
  requests_.erase(found);
  return out;
}

}  // namespace ibid
