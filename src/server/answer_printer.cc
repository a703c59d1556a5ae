#include "server/answer_printer.h"

#include "base/json_writer.h"
#include "server/api_error.h"

namespace ibid {

std::unique_ptr<AnswerPrinter> make_printer(ApiStyle style) {
  switch (style) {
    case ApiStyle::kMessages:
      return make_messages_printer();
    case ApiStyle::kResponses:
      return make_responses_printer();
    case ApiStyle::kOllamaChat:
    case ApiStyle::kOllamaGenerate:
      return make_ollama_printer(style);
    case ApiStyle::kLlama:
    case ApiStyle::kInfill:
      return make_llama_printer();
    case ApiStyle::kEmbeddings:
    case ApiStyle::kOllamaEmbed:
    case ApiStyle::kOllamaEmbeddings:
    case ApiStyle::kLlamaEmbedding:
    case ApiStyle::kCohereEmbed:
    case ApiStyle::kPooling:
      return make_embedding_printer(style);
    case ApiStyle::kRerank:
    case ApiStyle::kScore:
      return make_rank_printer(style);
    case ApiStyle::kChat:
    case ApiStyle::kChatBatch:
    case ApiStyle::kCompletions:
      break;
  }
  return make_openai_printer(style);
}

const char* id_prefix_of(ApiStyle style) {
  switch (style) {
    case ApiStyle::kChat:
    case ApiStyle::kChatBatch:
      return "chatcmpl-";
    case ApiStyle::kMessages:
      return "msg_";
    case ApiStyle::kResponses:
      return "resp_";
    case ApiStyle::kEmbeddings:
    case ApiStyle::kCohereEmbed:
      return "embd-";
    case ApiStyle::kPooling:
      return "pooling-";
    case ApiStyle::kRerank:
      return "rerank-";
    case ApiStyle::kScore:
      return "score-";
    default:
      return "cmpl-";
  }
}

void restyle_error(WebResponse& response, ApiStyle style, std::string_view request_id) {
  if (response.error == nullptr) return;
  std::string body;
  JsonWriter json(body);
  if (style == ApiStyle::kMessages) {
    body = "{\"type\":\"error\"," + messages_error_members(*response.error) + ",\"request_id\":";
    JsonWriter(body).string(request_id);
    body += '}';
  } else if (style == ApiStyle::kOllamaChat || style == ApiStyle::kOllamaGenerate || style == ApiStyle::kOllamaEmbed ||
             style == ApiStyle::kOllamaEmbeddings) {
    const ApiError& error = *response.error;
    const std::string message =
        error.n_ctx > 0 ? too_long_message(error, "the input length exceeds the context length: {N} tokens of {M}")
                        : error.message;
    json.begin_object().field("error", message).end_object();
  } else {
    return;
  }
  response.body = std::move(body);
}

}  // namespace ibid
