// Chat templates: the input's bytes are the template up to a zero byte, then the messages as JSON. Whatever they are,
// compiling and rendering end with a value or an error, and the users' ranges lie inside the prompt in order.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/jinja/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view all(reinterpret_cast<const char*>(data), size);
  size_t zero = all.find('\0');
  auto compiled = ibid::ChatTemplate::for_model(all.substr(0, zero));  // with its probes
  if (!compiled) return 0;
  ibid::ChatInput input;
  input.messages =
      zero == std::string_view::npos
          ? R"([{"role":"developer","content":[{"type":"text","text":"d"}]},)"
            R"({"role":"user","content":"Hé {{ x }} <|im_end|>"},)"
            R"({"role":"assistant","content":null,"tool_calls":[{"function":{"arguments":"{\"a\":[1]}"}}]}])"
          : std::string(all.substr(zero + 1));
  input.tools = R"([{"type":"function","function":{"name":"f","parameters":{"a":[1,2.5,true,null]}}}])";
  input.bos_token = "<s>";
  ibid::RenderBudget budget;
  budget.n_steps = 20000;
  budget.memory_bytes = 1 << 20;
  budget.output_bytes = 1 << 18;
  auto prompt = compiled->render(input, budget);
  if (!prompt) return 0;
  size_t end = 0;
  for (const ibid::TextRange& range : prompt->plain_ranges) {
    if (range.begin < end || range.end <= range.begin || range.end > prompt->text.size()) std::abort();
    end = range.end;
  }
  return 0;
}
