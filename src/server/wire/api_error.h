// ApiError: what a client receives when a request is refused, in OpenAI's form. The message is a sentence that names
// the field and valid values; it never holds addresses, paths, or anything of another request.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/wire/web_message.h"

namespace ibid {

class JsonWriter;

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;      // the field at fault; empty: null
  std::string code;       // one of a fixed set of words; empty: null
  int retry_after_s = 0;  // > 0: a Retry-After header
  // context_length_exceeded: what there was, and what fits; 0: not stated
  int64_t n_prompt_tokens = 0, n_ctx = 0;
  std::string hint = {};    // after the message in each API's words: what would help; empty: nothing would
  std::string resume = {};  // a JSON object: what resumes the answer on another replica; empty: nothing does
  uint64_t seed = 0;        // beside it

  static ApiError of(const Error& error);  // the status follows from the kind
  // Of a request that failed after it was taken.
  static ApiError of_generation(const Error& error);
};

// {"error": {"message", "type", "param", "code"}}; the type follows from the status, and of a prompt that is too long
// it is llama.cpp's, with its n_prompt_tokens and n_ctx beside (OpenAI's clients know it by its code).
std::string error_json(const ApiError& error);
// The whole answer: status, body, and the headers that a client needs with it.
WebResponse error_response(const ApiError& error);

// The members that resume the answer, if there are any.
void write_resume(const ApiError& error, JsonWriter& json);

// context_length_exceeded, in the words by which clients of the API know it: they then compact the conversation.
std::string too_long_message(const ApiError& error, std::string_view sentence);

// {"error": {"type", "message"}}'s members, as Anthropic's API has them.
std::string messages_error_members(const ApiError& error);

// The label under which an error of this status is counted: one of a fixed set.
std::string_view error_kind(int status);

}  // namespace ibid
