#include "server/fields/api_request.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "base/quoted.h"
#include "server/fields/parameters.h"
#include "server/fields/read_fields.h"

namespace ibid {
namespace {

constexpr std::array kRoles = {"system", "developer", "user", "assistant", "tool"};

bool is_same(const Json& a, const Json& b) {
  return a.is_number() && b.is_number() ? a.number() == b.number() : a.text() == b.text();
}

bool asks_for_nothing(const UnservedField& field, const Json& value) {
  if (value.is_null()) return true;
  Result<Json> allowed = parse_json(field.allowed);
  CHECK(allowed.ok() && allowed->array() != nullptr, field.name);
  return std::ranges::any_of(*allowed->array(), [&](const Json& item) { return is_same(item, value); });
}

// The address of a picture in a part {"type": "image_url", "image_url": {"url": ...}}, or with the address alone.
Result<std::string> picture_url(const Json& part, const std::string& place) {
  const Json* given = part.find("image_url");
  const Json* url = given != nullptr && given->object() != nullptr ? given->find("url") : given;
  if (url == nullptr || url->string() == nullptr)
    return invalid(place + ".image_url.url must be a text: a data URL of a picture.", place + ".image_url");
  return *url->string();
}

// A text, or the texts of parts in one. With pictures among them the parts stay apart, as chat templates read them, and
// `pictures` gets the pictures; null: none is allowed here.
Result<Json> read_content(const Json& content, const std::string& where, std::vector<PictureUrl>* pictures) {
  if (content.is_null() || content.string() != nullptr) return content;
  const Json::Array* parts = content.array();
  if (parts == nullptr) return wrong_value(where, "a text or an array of parts", content);
  std::string text;
  Json::Array apart;
  bool has_pictures = false;
  for (size_t i = 0; i < parts->size(); ++i) {
    const Json& part = (*parts)[i];
    const std::string place = where + "[" + std::to_string(i) + "]";
    const std::string* piece = part.string();
    if (piece == nullptr) {
      const Json* type = part.find("type");
      if (type == nullptr || type->string() == nullptr)
        return invalid(place + " must be an object {\"type\": \"text\", \"text\": ...}.", place);
      if (*type->string() == "image_url" && pictures != nullptr) {
        ASSIGN_OR_RETURN(std::string url, picture_url(part, place));
        if (pictures->size() == kMaxPictures)
          return invalid("The messages have more than " + std::to_string(kMaxPictures) + " pictures.", place);
        pictures->push_back({std::move(url), place + ".image_url"});
        apart.push_back(Json(Json::Object{{"type", Json(std::string("image"))}}));
        has_pictures = true;
        continue;
      }
      if (*type->string() != "text") {
        return unsupported(
            place + ".type is " + in_quotes(*type->string(), 32) + "; only texts and image_url are served.",
            place + ".type");
      }
      const Json* of_part = part.find("text");
      if (of_part == nullptr || of_part->string() == nullptr)
        return invalid(place + ".text must be a text.", place + ".text");
      piece = of_part->string();
    }
    if (i > 0) text += '\n';  // as vLLM and llama.cpp join them
    text += *piece;
    apart.push_back(Json(Json::Object{{"type", Json(std::string("text"))}, {"text", Json(*piece)}}));
  }
  return has_pictures ? Json(std::move(apart)) : Json(std::move(text));
}

// Whether a value is empty: null, "", an empty list or object.
bool is_nothing(const Json& value) {
  return value.is_null() || (value.string() != nullptr && value.string()->empty()) ||
         (value.array() != nullptr && value.array()->empty()) || (value.object() != nullptr && value.object()->empty());
}

Result<Json> check_message(const Json& message, const std::string& where, std::vector<PictureUrl>* pictures) {
  const Json::Object* members = message.object();
  if (members == nullptr) return wrong_value(where, "an object with role and content", message);
  const Json* role = message.find("role");
  if (role == nullptr || role->string() == nullptr)
    return invalid(where + ".role is missing; it must be system, developer, user, assistant or tool.", where + ".role");
  bool known = false;
  for (const char* name : kRoles) known = known || *role->string() == name;
  if (!known) return wrong_value(where + ".role", "system, developer, user, assistant or tool", *role);
  const Json* content = message.find("content");
  const Json* calls = message.find("tool_calls");
  if (calls != nullptr && !is_nothing(*calls) && calls->array() == nullptr)
    return wrong_value(where + ".tool_calls", "an array", *calls);
  // Null stands for no content. A role that may have no content may also leave it out.
  if (content == nullptr && *role->string() != "assistant" && *role->string() != "tool") {
    return invalid(where + ".content is missing; it must be a text or an array of text parts.", where + ".content");
  }
  Json::Object checked;
  for (const Json::Member& member : *members) {
    if (member.first == "role") {
      checked.emplace_back("role", *role);
    } else if (member.first == "content") {
      const bool may_show = *role->string() == "user";
      ASSIGN_OR_RETURN(Json read, read_content(member.second, where + ".content", may_show ? pictures : nullptr));
      checked.emplace_back("content", std::move(read));
    } else if (member.first == "name" && !is_nothing(member.second) && member.second.string() == nullptr) {
      return wrong_value(where + ".name", "a text", member.second);
    } else if (!member.second.is_null()) {
      checked.push_back(member);
    }
  }
  return Json(std::move(checked));
}

// Of an answer that goes on from the last message: an empty one is gone on from its beginning.
Status check_final(const ChatPrompt& chat) {
  const Json& last = chat.messages.array()->back();
  const Json* calls = last.find("tool_calls");
  if (*last.find("role")->string() == "assistant" && (calls == nullptr || is_nothing(*calls))) return {};
  return invalid("continue_final_message needs the last message to be the assistant's, without calls.",
                 "continue_final_message");
}

// The day, as templates spell it: it is asked for by the operator alone, because answers then change with it.
std::string today(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, format, &parts)};
}

void take_defaults(const RequestDefaults& defaults, const Json& body, ApiRequest& request) {
  if (request.max_tokens < 0 && defaults.max_tokens > 0)
    request.max_tokens = std::max(defaults.max_tokens, request.sampling.min_tokens);
  request.include_usage = request.include_usage || (defaults.include_usage && request.stream);
  request.tokens_as_ids = request.tokens_as_ids || defaults.tokens_as_ids;
  request.verbose = request.verbose || defaults.verbose;
  const Json* seed = body.find("seed");
  if (defaults.seed && (seed == nullptr || seed->is_null())) {
    request.has_seed = true;
    request.sampling.seed = *defaults.seed;
  }
  if (request.endpoint != Endpoint::kChat) return;
  const auto add = [&](const std::string& name, const Json& value) {
    Json& kwargs = request.chat.template_kwargs;
    if (kwargs.is_null()) kwargs = Json(Json::Object());
    if (kwargs.find(name) == nullptr) kwargs.object()->emplace_back(name, value);
  };
  if (const Json::Object* members = defaults.template_kwargs.object()) {
    for (const auto& [name, value] : *members) add(name, value);
  }
  if (defaults.template_dates) {
    add("date_string", Json(today("%d %b %Y")));
    add("datetime", Json(today("%b %d %Y")));
  }
}

// llama.cpp's reading of a conversation that ends with the assistant's message, if the request does not choose its own.
Status take_prefill(const Json& body, ChatPrompt& chat) {
  const Json::Array& messages = *chat.messages.array();
  const auto is_given = [](const Json& message) {
    const Json* content = message.find("content");
    return *message.find("role")->string() == "assistant" && content != nullptr && content->string() != nullptr;
  };
  const bool ends_itself =
      body.find("continue_final_message") != nullptr || body.find("add_generation_prompt") != nullptr;
  if (ends_itself || !is_given(messages.back())) return {};
  if (messages.size() > 1 && is_given(messages[messages.size() - 2]))
    return invalid("messages ends with two of the assistant; an answer goes on from one.", "messages");
  chat.continues_final = true;
  return {};
}

Status check_logprob_tokens(ApiRequest& request) {
  const size_t n = request.sampling.logprob_tokens.size();
  if (n == 0) return {};
  if (!request.want_logprobs) return invalid("logprob_token_ids needs logprobs.", "logprob_token_ids");
  if (request.search.kind != SearchKind::kNone)
    return unsupported("logprob_token_ids is not served beside a search.", "logprob_token_ids");
  request.sampling.logprobs = static_cast<int32_t>(n) + 1;  // so many are reported of each token
  return {};
}

// Each field by its row, and none that is not served.
Status read_fields(Endpoint endpoint, const Json& body, const ApiLimits& limits, ApiRequest& request) {
  const auto here = static_cast<unsigned>(endpoint);
  // In the table's order, so that which error comes first does not depend on the client's order of keys.
  for (const Parameter& parameter : parameters()) {
    if ((parameter.endpoints & here) == 0) continue;
    const Json* value = body.find(parameter.name);
    if (value == nullptr || value->is_null()) continue;
    if (parameter.alias_of != nullptr) {
      const Json* other = body.find(parameter.alias_of);
      if (other != nullptr && !other->is_null() && !is_same(*other, *value)) {
        return invalid(std::string(parameter.name) + " and " + parameter.alias_of +
                           " are two names of one field and differ; give one of them.",
                       parameter.name);
      }
    }
    TRY(read_parameter(parameter, *value, limits, request));
    if (samples(parameter)) request.sources.set(own_name(parameter), SamplingSource::kRequest);
  }
  for (const UnservedField& field : unserved_fields()) {
    if ((field.endpoints & here) == 0) continue;
    const Json* value = body.find(field.name);
    if (value == nullptr || asks_for_nothing(field, *value)) continue;
    return unsupported(std::string(field.name) + " is not served yet" +
                           (*field.instead != '\0' ? std::string("; ") + field.instead + "." : "."),
                       field.name);
  }
  return {};
}

// Checks the fields of a conversation that goes on in combination.
Status check_continued(const Json& body, const ApiLimits& limits, ApiRequest& request) {
  if (limits.defaults.prefill) TRY(take_prefill(body, request.chat));
  if (!request.chat.continues_final) return {};
  TRY(check_final(request.chat));
  const Json* generation_prompt = body.find("add_generation_prompt");
  if (generation_prompt != nullptr && generation_prompt->boolean() != nullptr && *generation_prompt->boolean())
    return invalid(
        "continue_final_message continues the last message, add_generation_prompt begins a new one; "
        "one of them may be true.",
        "add_generation_prompt");
  return {};
}

// How long the answers are, and how many.
Status check_sizes(const Json& body, const ApiLimits& limits, const ApiRequest& request) {
  const bool chat = request.endpoint == Endpoint::kChat;
  // llama.cpp's n_predict of 0 computes the prompt for those who come after.
  const Json* n_predict = body.find("n_predict");
  const bool computes_only = n_predict != nullptr && n_predict->is_number() && n_predict->number() == 0;
  if (request.max_tokens == 0 && !computes_only && (chat || !request.echo))
    return invalid("max_tokens must be at least 1 (0 is for completions with echo).", "max_tokens");
  const auto n_prompts = static_cast<int64_t>(chat ? 1 : request.prompts.size());
  const int32_t n = std::max({request.n, request.best_of, request.search.width});
  if (n_prompts * n > limits.max_choices) {
    return invalid("n times the number of prompts is " + std::to_string(n_prompts * n) + "; at most " +
                       std::to_string(limits.max_choices) + " choices fit into one request.",
                   "n");
  }
  if (request.max_tokens >= 0 && request.sampling.min_tokens > request.max_tokens) {
    return invalid("min_tokens is " + std::to_string(request.sampling.min_tokens) +
                       "; it must be at most max_tokens, " + std::to_string(request.max_tokens) + ".",
                   "min_tokens");
  }
  return {};
}

// What some fields' values make of others.
Status settle_fields(ApiRequest& request) {
  // The default cut must not come before mirostat's, which is one of its own.
  if (request.sampling.mirostat != 0 && request.sources.of("top_p") == SamplingSource::kDefault)
    request.sampling.top_p = 1;
  if (request.best_of > request.n || request.search.kind != SearchKind::kNone)
    request.sampling.logprobs = std::max(request.sampling.logprobs, 0);
  if (request.want_logprobs) request.sampling.logprobs = request.top_logprobs;
  TRY(check_logprob_tokens(request));
  if (request.endpoint == Endpoint::kCompletions && request.echo && request.want_logprobs &&
      request.prompt_logprobs < 0)
    request.prompt_logprobs = request.top_logprobs;
  // A trace shows both log-probabilities of the chosen token.
  if (request.trace) {
    request.sampling.logprobs = std::max(request.sampling.logprobs, 0);
    request.sampling.processed_logprobs = true;
  }
  return {};
}

}  // namespace

Result<Json> check_messages(const Json& messages, const ApiLimits& limits, const std::string& where,
                            std::vector<PictureUrl>* pictures) {
  const Json::Array* array = messages.array();
  if (array == nullptr) return wrong_value(where, "an array of messages", messages);
  if (array->empty()) return invalid(where + " is empty; it must have at least one message.", where);
  if (array->size() > static_cast<size_t>(limits.max_messages)) {
    return invalid(where + " has " + std::to_string(array->size()) + " messages; at most " +
                       std::to_string(limits.max_messages) + " are served.",
                   where);
  }
  Json::Array checked;
  for (size_t i = 0; i < array->size(); ++i) {
    ASSIGN_OR_RETURN(Json message, check_message((*array)[i], where + "[" + std::to_string(i) + "]", pictures));
    checked.push_back(std::move(message));
  }
  return Json(std::move(checked));
}

Status add_conversations(ApiRequest& request, const std::vector<Json>& more, const Json& body,
                         const ApiLimits& limits) {
  const auto n = static_cast<int64_t>(more.size()) + 1;
  if (n > limits.max_prompts || n * request.n > limits.max_choices) {
    return invalid("messages has " + std::to_string(n) + " conversations; at most " +
                       std::to_string(std::min(limits.max_prompts, limits.max_choices / request.n)) +
                       " fit into one request.",
                   "messages");
  }
  if (request.resume && !more.empty())
    return unsupported("resume is of one conversation, and there are several.", "resume");
  for (const Json& messages : more) {
    ChatPrompt chat{.continues_final = request.chat.continues_final};
    const std::string where = "messages[" + std::to_string(request.more_chats.size() + 1) + "]";
    ASSIGN_OR_RETURN(chat.messages, check_messages(messages, limits, where));
    if (limits.defaults.prefill) {
      const Json* asked = body.find("continue_final_message");
      chat.continues_final = asked != nullptr && asked->boolean() != nullptr && *asked->boolean();
      TRY(take_prefill(body, chat));
    }
    if (chat.continues_final) TRY(check_final(chat));
    request.more_chats.push_back({std::move(chat.messages), chat.continues_final});
  }
  return {};
}

Result<ApiRequest> parse_api_request(Endpoint endpoint, const Json& body, const ApiLimits& limits,
                                     const SamplingDefaults& defaults) {
  if (body.object() == nullptr) return invalid(std::string("The body must be a JSON object, not ") + body.kind() + ".");
  ApiRequest request;
  request.endpoint = endpoint;
  request.sampling = defaults.params;
  request.sources = defaults.sources;
  if (endpoint == Endpoint::kCompletions) request.add_special = AddSpecial::kAll;  // a chat template writes its own
  TRY(read_fields(endpoint, body, limits, request));
  const bool chat = endpoint == Endpoint::kChat;
  if (const Json* samplers = body.find("samplers"); samplers != nullptr && !samplers->is_null())
    TRY(keep_samplers(request, *samplers));
  take_defaults(limits.defaults, body, request);
  if (chat && request.chat.messages.is_null())
    return invalid("messages is missing; it must be an array of messages.", "messages");
  if (!chat && request.prompts.empty())
    return invalid("prompt is missing; it must be a text, an array of token ids, or an array of either.", "prompt");
  if (chat) TRY(check_tools(request));
  TRY(check_search(request));
  if (chat) TRY(check_continued(body, limits, request));
  if (chat && request.top_logprobs > 0 && !request.want_logprobs)
    return invalid("top_logprobs needs logprobs to be true.", "top_logprobs");
  if ((request.include_usage || request.continuous_usage) && !request.stream)
    return invalid("stream_options needs stream to be true.", "stream_options");
  TRY(check_sizes(body, limits, request));
  TRY(settle_fields(request));
  TRY(check_resume(request));
  take_default_eviction(limits.defaults.kv_eviction, request);
  return request;
}

}  // namespace ibid
