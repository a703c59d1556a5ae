// Requests for vectors of texts, of OpenAI, Cohere, Ollama and llama.cpp, to completions of no tokens.
#include <algorithm>
#include <array>

#include "base/quoted.h"
#include "server/dialects/dialects.h"
#include "server/fields/body_parts.h"
#include "server/fields/read_fields.h"

namespace ibid {
namespace {

constexpr std::array<std::pair<std::string_view, Pooling>, 4> kPoolings = {
    {{"mean", Pooling::kMean}, {"last", Pooling::kLast}, {"cls", Pooling::kFirst}, {"none", Pooling::kEach}}};

// vLLM's words for the bytes in base64; numbers in JSON have neither width nor order.
Status read_bytes_form(const Json& body, EmbeddingFields& out) {
  using Values = EmbeddingFields::Values;
  constexpr std::array<std::pair<std::string_view, Values>, 3> kValues = {
      {{"float32", Values::kF32}, {"float16", Values::kF16}, {"bfloat16", Values::kBF16}}};
  constexpr std::array<std::string_view, 3> kOrders = {"native", "little", "big"};  // ours is little
  if (const Json* type = given(body, "embed_dtype")) {
    const auto is_asked = [&](const auto& known) {
      return type->string() != nullptr && *type->string() == known.first;
    };
    const auto* found = std::ranges::find_if(kValues, is_asked);
    if (found == kValues.end()) return wrong_value("embed_dtype", "\"float32\", \"float16\" or \"bfloat16\"", *type);
    out.values = found->second;
    if (out.values != Values::kF32 && !out.base64) {
      return unsupported("embed_dtype is " + in_quotes(*type->string(), 16) +
                             " and the vectors are numbers in JSON; expected encoding_format base64.",
                         "embed_dtype");
    }
  }
  if (const Json* order = given(body, "endianness")) {
    if (order->string() == nullptr || std::ranges::find(kOrders, *order->string()) == kOrders.end())
      return wrong_value("endianness", "\"native\", \"little\" or \"big\"", *order);
    out.is_big_endian = *order->string() == "big";
    if (out.is_big_endian && !out.base64) {
      return unsupported("endianness is \"big\" and the vectors are numbers in JSON; expected encoding_format base64.",
                         "endianness");
    }
  }
  return {};
}

// What changes the text or the vector in ways that are not ours.
Status refuse_unserved(const Json& body) {
  if (given(body, "late_chunking_params") != nullptr)
    return unsupported("late_chunking_params is not served; task token_embed of /pooling has all tokens' vectors.",
                       "late_chunking_params");
  const Json* padding = given(body, "padding");
  if (padding != nullptr && !(padding->string() != nullptr && *padding->string() == "do_not_pad"))
    return unsupported("padding is not served; texts are read as they are (do_not_pad).", "padding");
  return {};
}

Status read_form(const Json& body, EmbeddingFields& out) {
  if (const Json* format = given(body, "encoding_format")) {
    const std::string* name = format->string();
    if (name == nullptr || (*name != "float" && *name != "base64"))
      return wrong_value("encoding_format", "\"float\" or \"base64\"", *format);
    out.base64 = *name == "base64";
  }
  if (const Json* pooling = given(body, "pooling")) {
    const std::string* name = pooling->string();
    const std::optional<Pooling> known = name != nullptr ? pooling_by_name(*name) : std::nullopt;
    if (!known) return wrong_value("pooling", "\"mean\", \"last\", \"cls\" or \"none\"", *pooling);
    out.pooling = *known;
  }
  if (const Json* activates = given(body, "use_activation")) {  // vLLM's word for the norm
    if (activates->boolean() == nullptr) return wrong_value("use_activation", "true or false", *activates);
    if (!*activates->boolean()) out.norm = EmbeddingFields::Norm::kNone;
  }
  TRY(refuse_unserved(body));
  return read_bytes_form(body, out);
}

// vLLM's tasks. Where none is named, what the model is for.
Status read_task(const Json& body, const ModelInfo& model, EmbeddingFields& out) {
  const Json* value = given(body, "task");
  if (value != nullptr && value->string() == nullptr)
    return wrong_value("task", "embed, token_embed or classify", *value);
  const std::string task = value != nullptr                ? *value->string()
                           : out.pooling == Pooling::kRank ? "classify"
                           : out.pooling == Pooling::kEach ? "token_embed"
                                                           : "embed";
  if (task == "embed" || task == "token_embed") {
    if (task == "token_embed") out.pooling = Pooling::kEach;
    if (task == "embed" && out.pooling == Pooling::kEach)
      return invalid(
          "Unsupported task: 'embed' needs one vector of a text, and pooling is none; expected mean, last or cls.",
          "task");
    return {};
  }
  if (task != "classify") {
    return unsupported("Unsupported task: " + in_quotes(task, 32) + "; embed, token_embed and classify are served.",
                       "task");
  }
  if (model.n_labels != 1) {
    return unsupported("Unsupported task: 'classify' needs a model with a head of one label, and this one has " +
                           (model.n_labels == 0 ? std::string("none.") : std::to_string(model.n_labels) + "."),
                       "task");
  }
  out.pooling = Pooling::kRank;
  out.is_score = true;
  return {};
}

// A part of a vector is one too only of models that were trained so (matryoshka), and no file states whether it is.
// Ollama cuts all the same.
Status read_dimensions(const Json& body, const EmbeddingApi& api, const ModelInfo& model, EmbeddingFields& out) {
  const std::string name = api.dimensions;
  const Json* value = given(body, name);
  if (value == nullptr) return {};
  ASSIGN_OR_RETURN(const int64_t n, read_integer(*value, 1, INT32_MAX, name));
  if (n > model.width || (n < model.width && !api.is_ollama)) {
    return unsupported(name + " is " + std::to_string(n) + "; this model's vectors have " +
                           std::to_string(model.width) +
                           " values, and its file does not state that fewer are supported.",
                       name);
  }
  out.dimensions = static_cast<int32_t>(n);
  return {};
}

// Whether the API has vectors that are made so.
Status check_pooling(const EmbeddingApi& api, EmbeddingFields& out) {
  if (out.pooling == Pooling::kRank && !out.is_score) {
    return unsupported(
        "This model ranks texts (/v1/rerank), and its file does not state how to pool vectors from them; set pooling "
        "mean, "
        "last or cls.",
        "pooling");
  }
  if (out.pooling == Pooling::kEach) {
    if (!api.has_token_vectors) {
      return unsupported(
          "pooling none gives a vector for each token, and answers of this API have one for each text; /pooling (task "
          "token_embed) and /embedding have them.",
          "pooling");
    }
    // llama.cpp gives them as they are, unless it is asked otherwise.
    if (api.has_norm) out.norm = EmbeddingFields::Norm::kNone;
  }
  return {};
}

// What Cohere's clients send in addition. Its own `truncate` is END where it is absent; nothing is cut here unasked.
Status read_cohere(const Json& body, EmbeddingFields& out, Json& completion) {
  constexpr std::array<std::string_view, 4> kTypes = {"float", "base64", "binary", "ubinary"};
  // Of models that were trained with words before a text; those here read all kinds alike.
  constexpr std::array<std::string_view, 4> kInputTypes = {"search_document", "search_query", "classification",
                                                           "clustering"};
  for (const char* name : {"images", "inputs"}) {
    if (given(body, name) != nullptr) return unsupported(std::string(name) + " is not served; use texts.", name);
  }
  if (const Json* kind = given(body, "input_type")) {
    if (kind->string() == nullptr || std::ranges::find(kInputTypes, *kind->string()) == kInputTypes.end()) {
      return invalid("Unsupported input_type: it must be search_document, search_query, classification or clustering.",
                     "input_type");
    }
  }
  const Json* types = given(body, "embedding_types");
  if (types != nullptr && types->array() == nullptr)
    return wrong_value("embedding_types", "a list of float, base64, binary and ubinary", *types);
  for (const Json& type : types != nullptr ? *types->array() : Json::Array()) {
    if (type.string() == nullptr || std::ranges::find(kTypes, *type.string()) == kTypes.end())
      return wrong_value("embedding_types", "a list of float, base64, binary and ubinary", type);
    if (std::ranges::find(out.types, *type.string()) == out.types.end()) out.types.push_back(*type.string());
  }
  if (out.types.empty()) out.types.emplace_back("float");
  if (const Json* cut = given(body, "truncate")) {
    const std::string* side = cut->string();
    if (side == nullptr || (*side != "NONE" && *side != "START" && *side != "END"))
      return wrong_value("truncate", "NONE, START or END", *cut);
    if (*side != "NONE") {
      set(completion, "truncate_prompt_tokens", Json(int64_t{-1}));
      set(completion, "truncation_side", Json(std::string(*side == "END" ? "right" : "left")));
    }
  }
  const Json* texts = given(body, "texts");
  for (const Json& text : texts != nullptr && texts->array() != nullptr ? *texts->array() : Json::Array()) {
    if (text.string() == nullptr) return wrong_value("texts", "a list of texts", text);
    out.texts.push_back(*text.string());
  }
  if (out.texts.empty()) return invalid("texts is missing; it must be a list of texts.", "texts");
  return {};
}

// vLLM's vectors of a conversation: of what the template makes of it, with nothing around it unless it is asked for.
void read_chat(const Json& body, DialectBody& out) {
  out.endpoint = Endpoint::kChat;
  out.prompt_name = "messages";
  out.body = Json(Json::Object{});
  for (const char* name : {"add_generation_prompt", "add_special_tokens"}) {
    const Json* value = given(body, name);
    set(out.body, name, value != nullptr ? *value : Json(false));
  }
  carry(body, out.body,
        {{"messages", "messages"},
         {"continue_final_message", "continue_final_message"},
         {"chat_template", "chat_template"},
         {"chat_template_kwargs", "chat_template_kwargs"}});
}

// A row of ids that llama.cpp and Ollama know under another name than OpenAI.
const Json* texts_in(const Json& body, const EmbeddingApi& api, std::string& name) {
  const Json* texts = given(body, name = api.texts);
  if (texts == nullptr && api.other_texts != nullptr) texts = given(body, name = api.other_texts);
  return texts;
}

bool is_empty(const Json* texts) {
  return texts == nullptr || (texts->string() != nullptr && texts->string()->empty()) ||
         (texts->array() != nullptr && texts->array()->empty());
}

}  // namespace

std::string_view pooling_name(Pooling pooling) {
  if (pooling == Pooling::kRank) return "rank";
  const auto* found = std::ranges::find(kPoolings, pooling, &decltype(kPoolings)::value_type::second);
  return found != kPoolings.end() ? found->first : "none";
}

std::optional<Pooling> pooling_by_name(std::string_view name) {
  const auto* found = std::ranges::find(kPoolings, name, &decltype(kPoolings)::value_type::first);
  if (found == kPoolings.end()) return std::nullopt;
  return found->second;
}

Result<DialectBody> body_of_embeddings(const Json& body, const EmbeddingApi& api, const ModelInfo& model,
                                       const ApiLimits& limits) {
  if (body.object() == nullptr) return invalid(std::string("The body must be a JSON object, not ") + body.kind() + ".");
  if (model.width == 0) return unsupported("This model makes no vectors of texts.", "model");
  DialectBody out;
  out.endpoint = Endpoint::kCompletions;
  out.embedding.pooling = model.pooling;
  TRY(read_form(body, out.embedding));
  if (api.has_tasks) TRY(read_task(body, model, out.embedding));
  TRY(check_pooling(api, out.embedding));
  TRY(read_dimensions(body, api, model, out.embedding));
  if (const Json* norm = given(body, "embd_normalize"); norm != nullptr && api.has_norm) {
    ASSIGN_OR_RETURN(const int64_t kind, read_integer(*norm, -1, 2, "embd_normalize"));
    out.embedding.norm = static_cast<EmbeddingFields::Norm>(kind);
  }
  const bool is_chat = api.has_chats && given(body, "messages") != nullptr;
  if (is_chat && given(body, "input") != nullptr)
    return invalid("input and messages are both there; expected one of them.", "messages");
  out.body = Json(Json::Object{{"max_tokens", Json(int64_t{0})}, {"echo", Json(true)}});
  if (is_chat) read_chat(body, out);
  if (api.has_types) TRY(read_cohere(body, out.embedding, out.body));
  if (!is_chat) carry(body, out.body, {{"add_special_tokens", "add_special_tokens"}});
  carry(body, out.body,
        {{"user", "user"},
         {"priority", "priority"},
         {"cache_salt", "cache_salt"},
         {"truncate_prompt_tokens", "truncate_prompt_tokens"},
         {"truncation_side", "truncation_side"}});
  const std::string* name = text_at(body, "model");
  const bool is_latest = api.is_ollama && name != nullptr && name->ends_with(":latest");
  if (is_latest) set(out.body, "model", Json(name->substr(0, name->size() - 7)));
  if (!is_latest) carry(body, out.body, {{"model", "model"}});
  // The begin of a text carries most of its meaning, and is what encoders' own tokenizers keep.
  if (out.body.find("truncation_side") == nullptr) set(out.body, "truncation_side", Json(std::string("right")));
  if (is_chat) return out;
  const Json* texts = texts_in(body, api, out.prompt_name);
  if (api.nothing != nullptr && is_empty(texts)) {  // Ollama loads the model so
    out.answer = api.nothing;
    return out;
  }
  if (texts == nullptr)
    return invalid(out.prompt_name + " is missing; it must be a text, a list of texts, ids, or a list of those.",
                   out.prompt_name);
  ApiLimits own = limits;
  own.max_prompts = limits.max_inputs;
  TRY(read_prompts(*texts, own, out.prompt_name));  // wrong ones under this name
  set(out.body, "prompt", *texts);
  return out;
}

}  // namespace ibid
