#include "text/jinja/chat_template.h"

#include <algorithm>

#include "text/jinja/json.h"
#include "text/jinja/machine.h"
#include "text/jinja/program.h"

namespace ibid {

using jinja::Value;

struct ChatTemplate::Compiled {
  std::shared_ptr<const jinja::Program> program;
  MessageForm form;
};

const std::string_view ChatTemplate::kDefaultSource =
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.content is string %}{{- message.content }}"
    "{%- elif message.content %}"
    "{%- for part in message.content if part.type == 'text' %}{{- part.text }}{%- endfor %}"
    "{%- endif %}"
    "{{- '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

namespace {

// As transformers does: the reasoning of an answer goes by three names, and templates read any of them.
Value with_reasoning(const Value& message) {
  const auto& dict = *message.as<jinja::DictObject>();
  const Value* reasoning = nullptr;
  for (std::string_view name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* found = dict.find(name);
    if (found != nullptr && !found->is_none()) {
      reasoning = found;
      break;
    }
  }
  if (reasoning == nullptr) return message;
  auto* out = new jinja::DictObject;
  out->set(Value::string("thinking"), *reasoning);
  for (const auto& [key, value] : dict.entries) out->set(key, value);
  out->set(Value::string("reasoning_content"), *reasoning);
  return Value::object(jinja::Kind::kDict, out);
}

}  // namespace

Result<ChatTemplate> ChatTemplate::compile(std::string_view source) {
  ASSIGN_OR_RETURN(auto program, jinja::parse(source));
  auto compiled = std::make_shared<Compiled>();
  compiled->program = std::move(program);
  return ChatTemplate(std::move(compiled));
}

Result<ChatTemplate> ChatTemplate::for_model(std::string_view source, std::string* warning) {
  if (source.empty() && warning != nullptr) {
    *warning =
        "The model has no chat template; ChatML (<|im_start|>role ... <|im_end|>) is used instead. "
        "Answers may be poor if it was trained with another form.";
  }
  ASSIGN_OR_RETURN(ChatTemplate as_given, compile(source.empty() ? kDefaultSource : source));
  const MessageForm form = probe_form(as_given);
  auto compiled = std::make_shared<Compiled>();
  compiled->program = as_given.compiled_->program;
  compiled->form = form;
  return ChatTemplate(std::move(compiled));
}

Result<RenderedPrompt> ChatTemplate::render(const ChatInput& input, const RenderBudget& budget) const {
  size_t input_bytes = input.messages.size() + input.tools.size() + input.documents.size();
  for (const auto& [name, json] : input.extra) input_bytes += json.size();
  jinja::Limits limits;
  limits.n_steps = budget.n_steps + static_cast<int64_t>(input_bytes);
  limits.memory_bytes = budget.memory_bytes + 4 * input_bytes;
  limits.output_bytes = budget.output_bytes + 4 * input_bytes;
  limits.depth = budget.depth;

  jinja::Machine machine(*compiled_->program, limits);
  if (input.now) machine.set_time(*input.now);
  ASSIGN_OR_RETURN(Value messages, jinja::read_json(input.messages, "messages", jinja::JsonMarks::kMessages));
  if (!messages.is(jinja::Kind::kList)) return invalid("The messages must be a list of objects.", "messages");
  std::string misfit;
  auto& items = messages.as<jinja::ListObject>()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is(jinja::Kind::kDict))
      return invalid("A message is not an object with role and content.", "messages");
    items[i] = with_reasoning(fit_message(machine, compiled_->form, items[i], i, misfit));
  }
  machine.define("messages", std::move(messages));
  auto define_json = [&](std::string_view name, std::string_view json) -> Status {
    ASSIGN_OR_RETURN(Value value, json.empty() ? Value::none() : jinja::read_json(json, name, jinja::JsonMarks::kAll));
    machine.define(name, std::move(value));
    return {};
  };
  TRY(define_json("tools", input.tools));
  TRY(define_json("documents", input.documents));
  machine.define("add_generation_prompt", Value::boolean(input.add_generation_prompt));
  machine.define("bos_token", Value::string(input.bos_token));
  machine.define("eos_token", Value::string(input.eos_token));
  for (const auto& [name, json] : input.extra) TRY(define_json(name, json));

  Result<jinja::Text> text = machine.run();
  if (!text) {
    Error error = text.error();
    if (!misfit.empty()) error.message += " (" + misfit + ".)";
    return error;
  }
  return RenderedPrompt{std::move(text->bytes), std::move(text->marks)};
}

bool ChatTemplate::mentions(std::string_view variable) const {
  const auto& names = compiled_->program->names;
  return std::find(names.begin(), names.end(), variable) != names.end();
}

const std::string& ChatTemplate::source() const { return compiled_->program->source; }
const MessageForm& ChatTemplate::form() const { return compiled_->form; }

void name_tokens(const Tokenizer& tokenizer, ChatInput& input) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  input.bos_token = tokenizer.token_bytes(vocabulary.bos, true);
  input.eos_token = tokenizer.token_bytes(vocabulary.eos, true);
}

}  // namespace ibid
