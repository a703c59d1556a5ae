#include "server/request/movable_requests.h"

#include <algorithm>
#include <limits>

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

// Its body, with the seed and what resumes it.
Result<Json> snapshot_of(const MovableRequest& r, Json resume, const JsonLimits& limits) {
  ASSIGN_OR_RETURN(Json body, parse_body(r.body, limits));
  if (r.has_options) {
    const Json* options = body.find("options");
    Json with_seed = options != nullptr && options->object() != nullptr ? *options : Json(Json::Object());
    put(with_seed, "seed", json_of(r.seed));
    put(body, "options", std::move(with_seed));
  } else {
    put(body, "seed", json_of(r.seed));
  }
  put(body, "resume", std::move(resume));
  return body;
}

constexpr double kNever = std::numeric_limits<double>::infinity();

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

// The lock is held throughout, here and below: what a request's functions refer to is there as long as it is in the
// list.
Result<std::string> MovableRequests::move(std::string_view id, std::string_view tenant, const JsonLimits& limits) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(requests_, [&](const auto& entry) {
    const MovableRequest& r = entry.second;
    return r.may_leave && r.tenant == tenant && (r.id == id || r.request_id == id);
  });
  if (found == requests_.end())
    return invalid("No request " + in_quotes(id, 128) + " is under way here that could be moved.", "id");
  const MovableRequest& r = found->second;
  const std::optional<RequestId> source = r.mailbox->source();
  const std::optional<Mailbox::Given> given =
      r.mailbox->stop(r.request, unavailable("The request was moved; its snapshot resumes it on another replica."));
  if (!given) return invalid("The answer of " + in_quotes(id, 128) + " has ended.", "id");
  r.cancel(source.value_or(r.request));
  ASSIGN_OR_RETURN(const Json request, snapshot_of(r, resume_of(r, *given), limits));
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("object", "request.snapshot").field("id", r.id).field("path", r.path);
  json.key("request").value(request).end_object();
  requests_.erase(found);
  return out;
}

std::optional<RequestMove> MovableRequests::next_to_move(double now, const JsonLimits& limits) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, r] : requests_) {
    if (r.not_before > now) continue;
    r.not_before = kNever;
    const std::optional<Mailbox::Given> given = r.mailbox->given();
    // The prompt's log-probabilities come with the first output, and with no other.
    if (!given || r.max_tokens == 0 || (r.scores_prompt && given->tokens.empty())) continue;
    Json resume = resume_of(r, *given);
    set(resume, "outputs", Json(true));
    const Result<Json> body = snapshot_of(r, std::move(resume), limits);
    if (!body) continue;
    return RequestMove{.id = r.id,
                       .request_id = r.request_id,
                       .path = r.path,
                       .body = body->text(),
                       .keys = r.keys,
                       .max_tokens = r.max_tokens,
                       .vocab_size = r.vocab_size,
                       .n_top = r.n_top,
                       .n_tokens = given->tokens.size(),
                       .n_text = given->n_text,
                       .source = {},
                       .mailbox = r.mailbox,
                       .now = r.now};
  }
  return std::nullopt;
}

void MovableRequests::try_again(const std::string& id, double when) {
  const std::lock_guard lock(mutex_);
  if (const auto found = requests_.find(id); found != requests_.end()) found->second.not_before = when;
}

std::optional<Mailbox::Given> MovableRequests::hand_over(RequestMove& move) {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(move.id);
  if (found == requests_.end()) return std::nullopt;
  const MovableRequest& r = found->second;
  const RequestId before = r.mailbox->source().value_or(r.request);
  move.source = r.next_id();
  std::optional<Mailbox::Given> given = r.mailbox->hand_over(r.request, move.source);
  if (given) r.cancel(before);
  return given;
}

Status MovableRequests::take_back(const std::string& id, const JsonLimits& limits) {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(id);
  if (found == requests_.end()) return {};
  const MovableRequest& r = found->second;
  const std::optional<Mailbox::Given> given = r.mailbox->given();
  if (!given) return {};
  const auto begin = [&]() -> Status {
    ASSIGN_OR_RETURN(const Json body, snapshot_of(r, resume_of(r, *given), limits));
    return r.begin_here(r, body.text());
  };
  const Status begun = begin();
  if (!begun) r.mailbox->stop(r.request, unavailable("The answer could not go on: " + begun.error().message));
  return begun;
}

int MovableRequests::end_resumable() {
  const std::lock_guard lock(mutex_);
  int n = 0;
  for (auto& [id, r] : requests_) {
    const std::optional<RequestId> source = r.mailbox->source();
    // A token may come in between: what was given is known once nothing comes any more.
    std::optional<Mailbox::Given> given;
    if (r.is_resumable) {
      given =
          r.mailbox->stop(r.request, unavailable("The server is shutting down; another replica resumes the answer."),
                          [&](const Mailbox::Given& all) { return resume_of(r, all).text(); });
    }
    if (!given) continue;
    r.cancel(source.value_or(r.request));
    r.not_before = kNever;
    ++n;
  }
  return n;
}

}  // namespace ibid
