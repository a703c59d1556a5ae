#include "server/fields/read_fields.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/quoted.h"
#include "server/fields/parameters.h"

namespace ibid {
namespace {

std::string found_value(const Json& found) {
  if (found.is_number()) return found.text();
  if (const std::string* s = found.string()) return in_quotes(*s, 32);
  return found.kind();
}

// A number without a fraction, however it is written: 1.0 is one, as JSON schemas have it.
std::optional<int64_t> whole_number(const Json& value) {
  if (const int64_t* integer = value.integer()) return *integer;
  if (!value.is_number() || value.large_integer() != nullptr) return std::nullopt;
  const double number = value.number();
  if (std::fabs(number) >= 9e15 || std::trunc(number) != number) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::string at(const std::string& where, size_t i) { return where + "[" + std::to_string(i) + "]"; }

}  // namespace

Error wrong_value(const std::string& where, const std::string& wanted, const Json& found) {
  return invalid(where + " must be " + wanted + ", not " + found_value(found) + ".", where);
}

Result<int64_t> read_integer(const Json& value, int64_t min, int64_t max, const std::string& where) {
  const std::optional<int64_t> integer = whole_number(value);
  if (!integer || *integer < min || *integer > max) {
    return wrong_value(where, "a whole number from " + std::to_string(min) + " to " + std::to_string(max), value);
  }
  return *integer;
}

Result<double> read_number(const Json& value, double min, double max, bool above_min, const std::string& where) {
  const double number = value.number();
  if (!value.is_number() || number < min || number > max || (above_min && number == min)) {
    return wrong_value(
        where,
        std::string("a number ") + (above_min ? "above " : "from ") + number_text(min) + " to " + number_text(max),
        value);
  }
  return number;
}

Result<std::vector<TokenId>> read_token_ids(const Json& value, const std::string& where) {
  const Json::Array* array = value.array();
  if (array == nullptr) return wrong_value(where, "an array of token ids", value);
  std::vector<TokenId> ids;
  ids.reserve(array->size());
  for (size_t i = 0; i < array->size(); ++i) {
    const std::optional<int64_t> integer = whole_number((*array)[i]);
    if (!integer || *integer < 0 || *integer > INT32_MAX) {
      return wrong_value(at(where, i), "a token id (a whole number from 0)", (*array)[i]);
    }
    ids.push_back(TokenId{static_cast<int32_t>(*integer)});
  }
  return ids;
}

Result<std::vector<Prompt>> read_prompts(const Json& value, const ApiLimits& limits, const std::string& where) {
  std::vector<Prompt> prompts;
  const std::string wanted = "a text, an array of token ids, or an array of either";
  if (const std::string* text = value.string()) {
    prompts.emplace_back(*text);
    return prompts;
  }
  const Json::Array* array = value.array();
  if (array == nullptr) return wrong_value(where, wanted, value);
  if (array->empty()) return invalid(where + " is an empty array; it must be " + wanted + ".", where);
  if ((*array)[0].is_number()) {
    ASSIGN_OR_RETURN(std::vector<TokenId> ids, read_token_ids(value, where));
    prompts.emplace_back(std::move(ids));
    return prompts;
  }
  if (array->size() > static_cast<size_t>(limits.max_prompts)) {
    return invalid(where + " has " + std::to_string(array->size()) + " prompts; at most " +
                       std::to_string(limits.max_prompts) + " fit into one request.",
                   where);
  }
  for (size_t i = 0; i < array->size(); ++i) {
    const Json& item = (*array)[i];
    if (const std::string* text = item.string()) {
      prompts.emplace_back(*text);
    } else if (item.array() != nullptr) {
      ASSIGN_OR_RETURN(std::vector<TokenId> ids, read_token_ids(item, at(where, i)));
      prompts.emplace_back(std::move(ids));
    } else {
      return wrong_value(at(where, i), "a text or an array of token ids", item);
    }
  }
  return prompts;
}

Status read_prompt(ApiRequest& request, const Json& value, const ApiLimits& limits) {
  ASSIGN_OR_RETURN(request.prompts, read_prompts(value, limits, "prompt"));
  return {};
}

Status read_messages(ApiRequest& request, const Json& value, const ApiLimits& limits) {
  request.pictures.clear();
  ASSIGN_OR_RETURN(request.chat.messages, check_messages(value, limits, "messages", &request.pictures));
  return {};
}

namespace {

Status read_choices(ApiRequest& request, const Json& value, const ApiLimits& limits, const char* name) {
  ASSIGN_OR_RETURN(const int64_t n, read_integer(value, 1, limits.max_n, name));
  request.n = static_cast<int32_t>(n);
  return {};
}

}  // namespace

Status read_n(ApiRequest& request, const Json& value, const ApiLimits& limits) {
  return read_choices(request, value, limits, "n");
}

Status read_n_cmpl(ApiRequest& request, const Json& value, const ApiLimits& limits) {
  return read_choices(request, value, limits, "n_cmpl");
}

Status read_stream_options(ApiRequest& request, const Json& value, const ApiLimits&) {
  if (value.object() == nullptr)
    return wrong_value("stream_options", "an object such as {\"include_usage\": true}", value);
  const auto option = [&](const char* name) -> Result<std::optional<bool>> {
    const Json* found = value.find(name);
    if (found == nullptr || found->is_null()) return std::optional<bool>();
    if (found->boolean() == nullptr) return wrong_value(std::string("stream_options.") + name, "true or false", *found);
    return std::optional(*found->boolean());
  };
  ASSIGN_OR_RETURN(const std::optional<bool> usage, option("include_usage"));
  ASSIGN_OR_RETURN(const std::optional<bool> each, option("continuous_usage_stats"));
  TRY(option("include_obfuscation"));  // without effect
  // As vLLM: usage in every event is more of the usage, not another way to ask for it; who declines it gets none.
  request.include_usage = usage.value_or(each.value_or(false));
  request.continuous_usage = request.include_usage && each.value_or(false);
  return {};
}

Status read_seed(ApiRequest& request, const Json& value, const ApiLimits&) {
  if (const uint64_t* large = value.large_integer()) {
    request.has_seed = true;
    request.sampling.seed = *large;
    return {};
  }
  const std::optional<int64_t> seed = whole_number(value);
  if (!seed) return wrong_value("seed", "a whole number from -9223372036854775808 to 18446744073709551615", value);
  request.has_seed = *seed != -1;
  request.sampling.seed = request.has_seed ? static_cast<uint64_t>(*seed) : 0;  // modulo 2^64
  return {};
}

Status read_top_p(ApiRequest& request, const Json& value, const ApiLimits&) {
  ASSIGN_OR_RETURN(const double p, read_number(value, 0, 1, false, "top_p"));
  // OpenAI's range has 0; the fewest tokens that reach "more than nothing" is one.
  request.sampling.top_p = std::max(static_cast<float>(p), FLT_MIN);
  return {};
}

Status read_top_k(ApiRequest& request, const Json& value, const ApiLimits&) {
  ASSIGN_OR_RETURN(const int64_t k, read_integer(value, -1, INT32_MAX, "top_k"));
  request.sampling.top_k = static_cast<int32_t>(std::max<int64_t>(k, 0));
  return {};
}

Status read_top_n_sigma(ApiRequest& request, const Json& value, const ApiLimits&) {
  ASSIGN_OR_RETURN(const double sigma, read_number(value, -1, 1000, false, "top_n_sigma"));
  request.sampling.top_n_sigma = std::max(static_cast<float>(sigma), 0.0f);
  return {};
}

Status read_allowed(ApiRequest& request, const Json& value, const ApiLimits&) {
  ASSIGN_OR_RETURN(request.sampling.allowed, read_token_ids(value, "allowed_token_ids"));
  std::vector<TokenId>& ids = request.sampling.allowed;  // each once: then there are no more than the vocabulary has
  std::ranges::sort(ids);
  const auto repeated = std::ranges::unique(ids);
  ids.erase(repeated.begin(), repeated.end());
  ids.shrink_to_fit();
  if (ids.empty()) {
    return invalid("allowed_token_ids is empty, so that no token could be drawn; leave it out to allow all.",
                   "allowed_token_ids");
  }
  return {};
}

Status read_logprobs(ApiRequest& request, const Json& value, const ApiLimits& limits) {
  ASSIGN_OR_RETURN(const int64_t n, read_integer(value, 0, limits.max_logprobs, "logprobs"));
  request.want_logprobs = true;
  request.top_logprobs = static_cast<int32_t>(n);
  return {};
}

Status read_n_probs(ApiRequest& request, const Json& value, const ApiLimits& limits) {
  ASSIGN_OR_RETURN(const int64_t n, read_integer(value, 0, limits.max_logprobs, "n_probs"));
  if (n == 0) return {};
  request.want_logprobs = true;
  request.top_logprobs = static_cast<int32_t>(n);
  return {};
}

Status read_truncate(ApiRequest& request, const Json& value, const ApiLimits&) {
  ASSIGN_OR_RETURN(const int64_t n, read_integer(value, -1, INT32_MAX, "truncate_prompt_tokens"));
  if (n == 0) {
    return invalid("truncate_prompt_tokens is 0, which leaves no prompt; it must be at least 1, or -1 for what fits.",
                   "truncate_prompt_tokens");
  }
  request.truncate_prompt = static_cast<int32_t>(n);
  return {};
}

Status read_top_logprobs(ApiRequest& request, const Json& value, const ApiLimits& limits) {
  ASSIGN_OR_RETURN(const int64_t n, read_integer(value, 0, limits.max_logprobs, "top_logprobs"));
  request.top_logprobs = static_cast<int32_t>(n);
  return {};
}

Status read_prompt_logprobs(ApiRequest& request, const Json& value, const ApiLimits& limits) {
  ASSIGN_OR_RETURN(const int64_t n, read_integer(value, 0, limits.max_logprobs, "prompt_logprobs"));
  request.prompt_logprobs = static_cast<int32_t>(n);
  return {};
}

Status read_logprob_tokens(ApiRequest& request, const Json& value, const ApiLimits& limits) {
  ASSIGN_OR_RETURN(request.sampling.logprob_tokens, read_token_ids(value, "logprob_token_ids"));
  const size_t n = request.sampling.logprob_tokens.size();
  if (n <= static_cast<size_t>(limits.max_logprobs)) return {};
  return invalid("logprob_token_ids has " + std::to_string(n) + " ids; at most " + std::to_string(limits.max_logprobs) +
                     " are reported.",
                 "logprob_token_ids");
}

Status read_add_special(ApiRequest& request, const Json& value, const ApiLimits&) {
  if (value.boolean() == nullptr) return wrong_value("add_special_tokens", "true or false", value);
  request.add_special = *value.boolean() ? AddSpecial::kAll : AddSpecial::kNothing;
  return {};
}

Status read_truncation_side(ApiRequest& request, const Json& value, const ApiLimits&) {
  const std::string* side = value.string();
  if (side == nullptr || (*side != "left" && *side != "right"))
    return wrong_value("truncation_side", "left or right", value);
  request.keeps_first = *side == "right";
  return {};
}

Status read_template_kwargs(ApiRequest& request, const Json& value, const ApiLimits&) {
  if (value.object() == nullptr) return wrong_value("chat_template_kwargs", "an object", value);
  if (request.chat.template_kwargs.is_null()) return request.chat.template_kwargs = value, Status();
  Json::Object& known = *request.chat.template_kwargs.object();
  for (const Json::Member& member : *value.object()) {
    std::erase_if(known, [&](const Json::Member& old) { return old.first == member.first; });
    known.push_back(member);
  }
  return {};
}

namespace {

// A variable of the template, unless chat_template_kwargs has it.
void add_kwarg(ApiRequest& request, const char* name, Json value) {
  if (request.chat.template_kwargs.is_null()) request.chat.template_kwargs = Json(Json::Object());
  if (request.chat.template_kwargs.find(name) == nullptr)
    request.chat.template_kwargs.object()->emplace_back(name, std::move(value));
}

}  // namespace

// Templates know the effort, or a switch, or neither.
Status read_reasoning_effort(ApiRequest& request, const Json& value, const ApiLimits&) {
  constexpr std::array kEfforts = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
  if (value.string() == nullptr || std::ranges::find(kEfforts, *value.string()) == kEfforts.end())
    return wrong_value("reasoning_effort", "none, minimal, low, medium, high, xhigh or max", value);
  const bool thinks = *value.string() != "none";
  request.reasoning_effort = *value.string();
  if (thinks) add_kwarg(request, "reasoning_effort", value);
  add_kwarg(request, "enable_thinking", Json(thinks));
  add_kwarg(request, "thinking", Json(thinks));
  return {};
}

Status read_reasoning_format(ApiRequest& request, const Json& value, const ApiLimits&) {
  const std::string* format = value.string();
  if (format == nullptr || (*format != "none" && *format != "auto" && *format != "deepseek"))
    return wrong_value("reasoning_format", "none, auto or deepseek", value);
  request.finds_reasoning = *format != "none";
  return {};
}

Status read_continue_final(ApiRequest& request, const Json& value, const ApiLimits&) {
  if (value.boolean() == nullptr) return wrong_value("continue_final_message", "true or false", value);
  request.chat.continues_final = *value.boolean();
  return {};
}

Status read_add_generation_prompt(ApiRequest& request, const Json& value, const ApiLimits&) {
  if (value.boolean() == nullptr) return wrong_value("add_generation_prompt", "true or false", value);
  request.chat.add_generation_prompt = *value.boolean();
  return {};
}

Status read_priority(ApiRequest& request, const Json& value, const ApiLimits& limits) {
  ASSIGN_OR_RETURN(const int64_t priority, read_integer(value, -100, 100, "priority"));
  if (priority != 0 && !limits.allow_priority) {
    return unsupported("priority is not open to requests on this server; leave it out or use 0.", "priority");
  }
  request.priority = static_cast<int32_t>(priority);
  return {};
}

namespace {

// A whole number from 0, as OpenAI spells ids as keys; nothing for any other text.
std::optional<int64_t> id_of_key(const std::string& key) {
  int64_t id = -1;
  const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
  if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || id < 0) return std::nullopt;
  return id;
}

// `text` where it is no id.
Status add_bias(ApiRequest& request, const std::string& where, const Json& value, TokenId id, const std::string* text) {
  if (text != nullptr && text->empty())
    return invalid(where + " is for an empty text; it must be a token id or a text.", where);
  const bool ban = value.boolean() != nullptr && !*value.boolean();
  float bias = 0;
  if (!ban) {
    ASSIGN_OR_RETURN(const double number, read_number(value, -100, 100, false, where));
    bias = static_cast<float>(number);
  }
  if (text != nullptr) {
    request.text_bias.push_back({*text, bias, ban});
  } else if (ban) {
    request.sampling.banned.push_back(id);
  } else {
    request.sampling.logit_bias.emplace_back(id, bias);
  }
  return {};
}

}  // namespace

Status read_logit_bias(ApiRequest& request, const Json& value, const ApiLimits& limits) {
  const Json::Object* object = value.object();
  const Json::Array* array = value.array();
  if (object == nullptr && array == nullptr)
    return wrong_value("logit_bias", "an object {\"ID or text\": BIAS} or an array of pairs [ID or text, BIAS]", value);
  const size_t n = object != nullptr ? object->size() : array->size();
  if (n > static_cast<size_t>(limits.max_logit_bias)) {
    return invalid("logit_bias has " + std::to_string(n) + " entries; at most " +
                       std::to_string(limits.max_logit_bias) + " are served.",
                   "logit_bias");
  }
  for (size_t i = 0; object != nullptr && i < n; ++i) {
    const auto& [key, bias] = (*object)[i];
    const std::optional<int64_t> id = id_of_key(key);
    if (id && *id > INT32_MAX)
      return invalid("logit_bias has the token id " + key + ", which no model has.", "logit_bias");
    TRY(add_bias(request, "logit_bias." + shown(key, 32), bias, TokenId{static_cast<int32_t>(id.value_or(-1))},
                 id ? nullptr : &key));
  }
  for (size_t i = 0; array != nullptr && i < n; ++i) {
    const Json::Array* pair = (*array)[i].array();
    const std::string where = at("logit_bias", i);
    if (pair == nullptr || pair->size() != 2) return wrong_value(where, "a pair [ID or text, BIAS]", (*array)[i]);
    const std::string* text = (*pair)[0].string();
    TokenId id = TokenId::kNone;
    if (text == nullptr) {
      ASSIGN_OR_RETURN(const int64_t whole, read_integer((*pair)[0], 0, INT32_MAX, where + "[0]"));
      id = TokenId{static_cast<int32_t>(whole)};
    }
    TRY(add_bias(request, where + "[1]", (*pair)[1], id, text));
  }
  size_t n_bytes = 0;
  for (const TextBias& item : request.text_bias) n_bytes += item.text.size();
  if (n_bytes > static_cast<size_t>(limits.max_stop_bytes)) {
    return invalid("logit_bias has texts of " + std::to_string(n_bytes) + " bytes; at most " +
                       std::to_string(limits.max_stop_bytes) + " bytes together are served.",
                   "logit_bias");
  }
  return {};
}

}  // namespace ibid
