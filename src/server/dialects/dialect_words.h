// Errors in the words of the API that was asked: bodies of other APIs are read as ours (dialects.h), and what is wrong
// with one is found under our names.
#pragma once

#include "server/wire/api_error.h"

namespace ibid {

// The same error, of fields by the names that they have in the API.
ApiError in_words_of_messages(ApiError error);
ApiError in_words_of_responses(ApiError error);
ApiError in_words_of_ollama_chat(ApiError error);
ApiError in_words_of_ollama_generate(ApiError error);
ApiError in_words_of_llama(ApiError error);

}  // namespace ibid
