// Dialects: the bodies of other APIs, in the words of our own two. What they ask for and we have becomes a field of
// /v1/chat/completions or /v1/completions, which is then read and checked as there; what is not served here is refused
// by its name in the API that asked.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_writer.h"
#include "base/result.h"
#include "server/dialects/stored_responses.h"
#include "server/fields/api_request.h"
#include "server/request/backend.h"

namespace ibid {

// What llama.cpp's answers have in addition.
struct LlamaFields {
  bool return_tokens = false;
  bool timings_per_token = false;
  bool post_sampling = false;                // probabilities after the processors
  std::vector<std::string> response_fields;  // these alone; empty: all
};

// What vectors of texts are asked for, and how they are written.
struct EmbeddingFields {
  Pooling pooling = Pooling::kNone;  // none: an answer is asked for, and nothing below
  enum class Norm : int8_t { kNone = -1, kMaxAbs16, kTaxicab, kEuclid } norm = Norm::kEuclid;  // as llama.cpp counts
  int32_t dimensions = 0;  // the first so many values; 0: all
  bool base64 = false;
  enum class Values : uint8_t { kF32, kF16, kBF16 } values = Values::kF32;  // in base64
  bool is_big_endian = false;                                               // there
  bool is_score = false;  // one value, that of a cross-encoder's head: 1 / (1 + exp(-x)) of it, unless there is no norm
  std::vector<std::string> types;  // of Cohere: float, base64, binary or ubinary, each once
  std::vector<std::string> texts;  // of Cohere, whose answers repeat them
};

// What scores of pairs are asked for, and how they are written.
struct RankFields {
  std::vector<Prompt> pairs;           // their ids
  std::vector<int32_t> second_text;    // of each, Request::second_text
  std::vector<std::string> documents;  // where the answer repeats them
  bool returns_documents = false;
  bool raw = false;                // as the model gave them
  bool is_bare = false;            // an array alone, with text-embeddings-inference's names
  int32_t top_n = 0;               // the best alone; 0: all
  int32_t max_tokens_per_doc = 0;  // of a document, the first so many; 0: all
  int32_t max_pair = 0;            // of both texts together, with what stands around them; 0: all, -1: as many as fit
};

// How a call is written if the tool was not declared as a plain function of that name.
struct CallForm {
  std::string flat;         // the name that the model knows
  std::string name, space;  // as they were declared; `space`: of a namespace, or empty
  bool is_custom = false;   // its argument is a text, kCustomInput
};
inline constexpr const char* kCustomInput = "input";
inline std::string in_namespace(const std::string& space, const std::string& name) { return space + "." + name; }

struct DialectBody {
  Endpoint endpoint = Endpoint::kChat;
  Json body;
  std::optional<std::string> answer;  // of a request that needs no model, as JSON
  LlamaFields llama;
  EmbeddingFields embedding;
  RankFields rank;                   // no pairs: no scores are asked for
  std::vector<Json> conversations;   // of a batch of chats, after the one in the body
  std::string prompt_name;           // what that API calls its texts
  std::vector<CallForm> call_forms;  // of /v1/responses
  // Of /v1/responses: the fields that an answer repeats, and what is kept of it.
  std::shared_ptr<const Json> echo;
  std::shared_ptr<StoredResponse> stored;
  bool is_stored = false;
};

// The tokens between which a model fills in; kNone where it has none.
struct FimTokens {
  TokenId prefix = TokenId::kNone, suffix = TokenId::kNone, middle = TokenId::kNone;
  TokenId repository = TokenId::kNone, file = TokenId::kNone;
  bool is_there() const { return prefix != TokenId::kNone && suffix != TokenId::kNone && middle != TokenId::kNone; }
};
FimTokens find_fim_tokens(const Tokenizer& tokenizer);  // looks at the whole vocabulary

// Anthropic's Messages. `counts`: of /v1/messages/count_tokens, which needs no max_tokens.
Result<DialectBody> body_of_messages(const Json& body, bool counts = false);
// vLLM's /v1/chat/completions/batch: a chat's body whose `messages` are several conversations.
Result<DialectBody> body_of_chat_batch(Json body);
// OpenAI's Responses; `find`: a stored one of the same tenant, or null.
using FindResponse = std::function<std::shared_ptr<const StoredResponse>(std::string_view id)>;
Result<DialectBody> body_of_response(const Json& body, const FindResponse& find);
// Ollama's /api/chat and /api/generate. `may_unload`: the model is one of several.
Result<DialectBody> body_of_ollama(const Json& body, bool generate, const ModelInfo& model, bool may_unload);
// Whether a keep_alive is 0, as a number or as a duration.
bool ends_at_once(const Json& keep_alive);
// llama.cpp's /completion and /infill.
Result<DialectBody> body_of_completion(const Json& body, const Tokenizer& tokenizer);
// Makes ids of a prompt that is a row of ids and texts; of such rows in a list of prompts; or also texts of llama.cpp's
// objects, whose texts in rows spell special tokens.
enum class MixedPrompts : uint8_t { kOne, kList, kLlama };
Status mend_prompts(const Tokenizer& tokenizer, MixedPrompts kind, Json& prompt);
// Of these members of a body.
Status mend_fields(std::initializer_list<std::string_view> names, MixedPrompts kind, const Tokenizer& tokenizer,
                   Json& body);
Result<DialectBody> body_of_infill(const Json& body, const Tokenizer& tokenizer, const FimTokens& fim);
// The prompts of a request with a suffix, as the model fills in what stands between.
Status fill_in(ApiRequest& api, const Tokenizer& tokenizer, const FimTokens& fim);

// How the APIs differ that make vectors of texts.
struct EmbeddingApi {
  const char* texts = "input";            // the field
  const char* other_texts = nullptr;      // its other name
  const char* dimensions = "dimensions";  // the field
  bool has_chats = false;                 // a conversation in the place of texts
  bool has_tasks = false;                 // vLLM's
  bool has_types = false;                 // Cohere's, and what its clients send besides
  bool has_token_vectors = false;         // pooling none
  bool has_norm = false;                  // llama.cpp's embd_normalize; vectors of tokens have none then, unless asked
  bool is_ollama = false;                 // cuts any model's vectors; a name may end with ":latest"
  const char* nothing = nullptr;          // the answer where there are no texts; null: they are missing then
};
Result<DialectBody> body_of_embeddings(const Json& body, const EmbeddingApi& api, const ModelInfo& model,
                                       const ApiLimits& limits);
// Scores of pairs of texts: a query with each of its documents, best first (Cohere, Jina), or two lists (vLLM).
Result<DialectBody> body_of_rank(const Json& body, bool reranks, const ModelInfo& model, const Tokenizer& tokenizer,
                                 const ApiLimits& limits);
std::string_view pooling_name(Pooling pooling);
std::optional<Pooling> pooling_by_name(std::string_view name);

// What a request asked for, as llama.cpp shows it in its answers.
std::string settings_json(const ApiRequest& api, const Vocabulary& vocabulary);

}  // namespace ibid
