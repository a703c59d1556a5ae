// How a template's model writes its answers.
#include "text/jinja/chat_template.h"

namespace ibid {

bool ChatTemplate::wants_functions() const {
  return source().find("functools[") != std::string::npos && mentions("functions");
}

AnswerFormat ChatTemplate::answer_format() const {
  // Templates put their markers together from pieces, so that a source need not have them; what it
  // prints has. Tools are not printed: their definitions would be taken for calls.
  constexpr const char* kCall =
      R"([{"role":"user","content":"?"},{"role":"assistant","content":"","tool_calls":[{"id":"call00001","type":)"
      R"("function","function":{"name":"probe","arguments":{"key":"value"}}}]}])";
  ChatInput input;
  input.messages = kCall;
  input.add_generation_prompt = false;
  const Result<RenderedPrompt> printed = render(input);
  return AnswerFormat::of_template(source() + '\n' + (printed ? printed->text : std::string()), shows_tools());
}

}  // namespace ibid
