// ChatPrompt: a conversation as a request gives it to the chat template, read and checked.
#pragma once

#include "base/json.h"

namespace ibid {

struct ChatPrompt {
  Json messages;         // an array of objects, as check_messages leaves them
  Json tools;            // an array of function tools as OpenAI spells them, or null
  Json template_kwargs;  // an object of more variables, or null
  bool add_generation_prompt = true;
  bool continues_final = false;  // the last message is the beginning of the answer
};

}  // namespace ibid
