#include "server/dialects/dialects.h"

#include <cmath>
#include <concepts>

#include "sample/sampling_digest.h"

namespace ibid {

std::string settings_json(const ApiRequest& api, const Vocabulary& vocabulary) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("seed").large_integer(api.sampling.seed).field("n_predict", int64_t{api.max_tokens});
  for_each_parameter(api.sampling, [&]<typename T>(std::string_view name, const T& value) {
    if constexpr (std::same_as<T, float>) json.key(name).single(value);
    if constexpr (std::same_as<T, int32_t>) json.field(name, int64_t{value});
    if constexpr (std::same_as<T, bool>) json.key(name).boolean(value);
  });
  json.key("logit_bias").begin_array();
  const auto add_bias = [&](TokenId id) -> JsonWriter& {
    return json.begin_object().field("token", int64_t{raw(id)}).key("bias");
  };
  for (const auto& [id, bias] : api.sampling.logit_bias) {
    add_bias(id);
    std::isfinite(bias) ? json.single(bias) : json.null();
    json.end_object();
  }
  if (api.sampling.ignore_eos) {
    for (const TokenId id : vocabulary.end_of_generation) add_bias(id).null().end_object();
  }
  json.end_array();
  json.key("stop").begin_array();
  for (const std::string& stop : api.stop) json.string(stop);
  json.end_array()
      .field("n_probs", int64_t{api.want_logprobs ? api.top_logprobs : 0})
      .key("stream")
      .boolean(api.stream);
  json.end_object();
  return out;
}

Result<DialectBody> body_of_chat_batch(Json body) {
  Json::Object* members = body.object();
  if (members == nullptr) return invalid(std::string("The body must be a JSON object, not ") + body.kind() + ".");
  DialectBody out;
  for (auto& [name, value] : *members) {
    if (name == "messages") {
      Json::Array* conversations = value.array();
      if (conversations == nullptr || conversations->empty() || conversations->front().array() == nullptr)
        return invalid("messages must be an array of conversations, each an array of messages.", "messages");
      out.conversations.assign(std::make_move_iterator(conversations->begin() + 1),
                               std::make_move_iterator(conversations->end()));
      Json first = std::move(conversations->front());
      value = std::move(first);
    } else if ((name == "stream" || name == "echo") && value.boolean() != nullptr && *value.boolean()) {
      return unsupported(name + " is not served for several conversations; leave it out.", name);
    }
  }
  out.body = std::move(body);
  return out;
}

}  // namespace ibid
