// A request's fields for drafts (docs/users/speculation.md).
#include "base/quoted.h"
#include "server/fields/read_fields.h"
#include "spec/drafts.h"

namespace ibid {
namespace {

Status check_mode(const std::string& mode, const ApiLimits& limits) {
  if (mode == "off" || mode == "auto") return {};
  if (limits.max_drafts == 0) {
    return unsupported("This server does not speculate (--spec off); leave speculation out, or set it to auto or off.",
                       "speculation.mode");
  }
  if (mode == "ngram" || (!mode.empty() && mode == limits.proposer)) return {};
  const std::string runs = limits.proposer.empty() ? "auto, off or ngram" : "auto, off, ngram or " + limits.proposer;
  return unsupported("This server does not run speculation.mode " + in_quotes(mode) + "; expected " + runs + ".",
                     "speculation.mode");
}

// Within what the server verifies: more would never be, and who asks for it should know.
Result<int32_t> read_k(const Json& value, const ApiLimits& limits) {
  const char* const where = "speculation.k";
  ASSIGN_OR_RETURN(const int64_t k, read_integer(value, 0, kMaxDrafts, where));
  if (k > limits.max_drafts) {
    return unsupported("speculation.k is " + std::to_string(k) + ", and this server verifies at most " +
                           std::to_string(limits.max_drafts) + " drafts of a step (--spec-k).",
                       where);
  }
  return static_cast<int32_t>(k);
}

Result<Verifier> read_verifier(const std::string& name) {
  if (name == "coupled") return Verifier::kCoupled;
  if (name == "rejection") return Verifier::kRejection;
  if (name == "typical") return Verifier::kTypical;
  return unsupported("speculation.verifier is " + in_quotes(name) + "; expected coupled, rejection or typical.",
                     "speculation.verifier");
}

}  // namespace

Status read_speculation(ApiRequest& request, const Json& value, const ApiLimits& limits) {
  if (value.object() == nullptr) return wrong_value("speculation", "an object such as {\"mode\": \"auto\"}", value);
  request.reports_drafts = true;
  bool is_off = false;
  for (const auto& [key, what] : *value.object()) {
    if (what.is_null()) continue;
    const std::string where = "speculation." + shown(key, 64);
    if (key == "mode") {
      if (what.string() == nullptr) return wrong_value(where, "the name of a mode, such as auto, off or ngram", what);
      TRY(check_mode(*what.string(), limits));
      is_off = *what.string() == "off";
      request.drafts_are_free = *what.string() == "ngram";
    } else if (key == "k") {
      ASSIGN_OR_RETURN(request.max_drafts, read_k(what, limits));
    } else if (key == "verifier") {
      if (what.string() == nullptr) return wrong_value(where, "coupled, rejection or typical", what);
      ASSIGN_OR_RETURN(request.verifier, read_verifier(*what.string()));
    } else {
      return unsupported(where + " is not served; leave it out.", where);
    }
  }
  if (is_off) request.max_drafts = 0;
  return {};
}

// {"type": "content", "content": TEXT}, or an array of text parts.
Status read_prediction(ApiRequest& request, const Json& value, const ApiLimits&) {
  const Json::Object* members = value.object();
  if (members == nullptr) return wrong_value("prediction", "an object with type and content", value);
  const Json *type = nullptr, *content = nullptr;
  for (const auto& [key, what] : *members) {
    if (key == "type") type = &what;
    if (key == "content") content = &what;
  }
  if (type == nullptr || type->string() == nullptr || *type->string() != "content")
    return invalid("prediction.type must be \"content\".", "prediction.type");
  if (content == nullptr) return invalid("prediction has no content.", "prediction.content");
  request.reports_drafts = true;
  if (content->string() != nullptr) {
    request.prediction = *content->string();
    return {};
  }
  if (content->array() == nullptr) return wrong_value("prediction.content", "a string or an array of texts", *content);
  for (const Json& part : *content->array()) {
    const Json* text = part.object() == nullptr ? nullptr : part.find("text");
    if (text == nullptr || text->string() == nullptr)
      return wrong_value("prediction.content", "a string or an array of {\"type\": \"text\", \"text\": ...}", *content);
    request.prediction += *text->string();
  }
  return {};
}

}  // namespace ibid
