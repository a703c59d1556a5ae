#include "text/jinja/chat_template.h"

#include <algorithm>

#include "text/jinja/json.h"
#include "text/jinja/machine.h"
#include "text/jinja/message_parts.h"
#include "text/jinja/program.h"

namespace ibid {

using jinja::Value;

struct ChatTemplate::Compiled {
  std::shared_ptr<const jinja::Program> program;
  MessageForm form;
  bool is_fitted = false;  // messages are brought into the form
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

constexpr const char* kReasonings[] = {"reasoning_content", "thinking", "reasoning"};

// As transformers does: the reasoning of an answer goes by three names, and templates read any of them.
Value with_reasoning(const Value& message) {
  const auto& dict = *message.as<jinja::DictObject>();
  const Value* reasoning = nullptr;
  for (const char* name : kReasonings) {
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
  compiled->is_fitted = true;
  return ChatTemplate(std::move(compiled));
}

namespace {

using jinja::Kind;

bool is_all_blank(std::string_view s) { return s.find_first_not_of(" \t\r\n") == std::string_view::npos; }

std::string_view without_blanks(std::string_view s) {
  while (!s.empty() && is_all_blank(s.substr(s.size() - 1))) s.remove_suffix(1);
  while (!s.empty() && is_all_blank(s.substr(0, 1))) s.remove_prefix(1);
  return s;
}

// The member of the last message whose text the answer continues; empty if the message has no text.
std::string_view member_to_continue(const Value& last) {
  const Value* content = member(last, "content");
  if (content != nullptr && content->is_string() && !is_all_blank(content->str())) return "content";
  for (const char* name : kReasonings) {
    const Value* reasoning = member(last, name);
    if (reasoning != nullptr && reasoning->is_string() && !is_all_blank(reasoning->str())) return name;
  }
  return "";
}

Result<std::vector<Value>> parse_messages(const std::string& json, jinja::JsonMarks marks) {
  ASSIGN_OR_RETURN(Value messages, jinja::read_json(json, "messages", marks));
  if (!messages.is(Kind::kList)) return invalid("The messages must be a list of objects.", "messages");
  for (const Value& message : messages.items()) {
    if (!message.is(Kind::kDict)) return invalid("A message is not an object with role and content.", "messages");
  }
  return messages.items();
}

// The dict with that user's text as a member, the only one that is marked.
Value with_marked(const Value& dict, std::string_view name, std::string text) {
  auto* out = new jinja::DictObject;
  Value made = Value::object(Kind::kDict, out);
  for (const auto& [key, value] : dict.as<jinja::DictObject>()->entries) {
    const bool is_it = key.is_string() && key.str() == name;
    out->set(key, is_it ? Value::string(jinja::Text::marked(text)) : value);
  }
  return made;
}

// Whether the text is only tags, such as <think> and [/THINK].
bool is_markup(std::string_view s) {
  for (s = without_blanks(s); !s.empty(); s = without_blanks(s)) {
    const size_t end = s[0] == '<' ? s.find('>') : s[0] == '[' ? s.find(']') : std::string_view::npos;
    if (end == std::string_view::npos) return false;
    s.remove_prefix(end + 1);
  }
  return true;
}

// Whether the ranges `own` of the text hold all of `content`, in order, except for markup that the template wrote
// itself.
bool has_all_of(std::string_view text, const std::vector<TextRange>& own, std::string_view content) {
  for (const TextRange& range : own) {
    const std::string_view piece = without_blanks(text.substr(range.begin, range.end - range.begin));
    const size_t at = content.find(piece);
    if (at == std::string_view::npos || !is_markup(content.substr(0, at))) return false;
    content.remove_prefix(at + piece.size());
  }
  return !own.empty() && content.empty();
}

void cut_at(RenderedPrompt& prompt, size_t end) {
  prompt.text.resize(end);
  std::erase_if(prompt.plain_ranges, [&](const TextRange& range) { return range.begin >= end; });
  for (TextRange& range : prompt.plain_ranges) range.end = std::min(range.end, end);
}

}  // namespace

// One input: parsed once, rendered as often as needed.
class ChatTemplate::Rendering {
 public:
  Rendering(const Compiled& compiled, const ChatInput& input, const RenderBudget& budget)
      : compiled_(compiled), input_(input) {
    size_t input_bytes = input.messages.size() + input.tools.size() + input.documents.size();
    for (const auto& [name, json] : input.extra) input_bytes += json.size();
    limits_.n_steps = all_steps_ = budget.n_steps + static_cast<int64_t>(input_bytes);
    limits_.memory_bytes = budget.memory_bytes + 4 * input_bytes;
    limits_.output_bytes = budget.output_bytes + 4 * input_bytes;
    limits_.depth = budget.depth;
  }

  Result<RenderedPrompt> run() {
    ASSIGN_OR_RETURN(std::vector<Value> messages, parse_messages(input_.messages, jinja::JsonMarks::kMessages));
    std::string_view goes_on;
    if (input_.continues_final && !messages.empty()) {
      goes_on = member_to_continue(messages.back());
      if (goes_on.empty()) messages.pop_back(), asks_ = true;  // no text: a new answer begins
    }
    TRY(define_all(jinja::JsonMarks::kAll));
    if (goes_on.empty()) return repaired(messages);
    Result<RenderedPrompt> prompt = continued(messages, goes_on);
    if (prompt) {
      prompt->ends_in_message = !asks_;
      prompt->ends_in_reasoning = prompt->ends_in_message && goes_on != "content";
    }
    return prompt;
  }

 private:
  Status define_all(jinja::JsonMarks marks) {
    variables_.clear();
    const auto define = [&](std::string_view name, std::string_view json) -> Status {
      ASSIGN_OR_RETURN(Value value, json.empty() ? Value::none() : jinja::read_json(json, name, marks));
      if (name == "tools" && compiled_.is_fitted) value = fit_tools(compiled_.form, value, has_plain_tools_);
      variables_.emplace_back(name, std::move(value));
      return {};
    };
    TRY(define("tools", input_.tools));
    TRY(define("documents", input_.documents));
    variables_.emplace_back("add_generation_prompt",
                            Value::boolean(asks_ || (input_.add_generation_prompt && !input_.continues_final)));
    variables_.emplace_back("bos_token", Value::string(input_.bos_token));
    variables_.emplace_back("eos_token", Value::string(input_.eos_token));
    for (const auto& [name, json] : input_.extra) TRY(define(name, json));
    return {};
  }

  // The prompt up to the end of the last message's text. A second rendering, in which only that text is marked as a
  // user's, finds its place: the template's own words may be spelled like it.
  Result<RenderedPrompt> continued(std::vector<Value>& messages, std::string_view name) {
    const Value last = messages.back();
    const std::string_view content = without_blanks(member(last, name)->str());
    Result<RenderedPrompt> prompt = repaired(messages);
    if (prompt) {
      ASSIGN_OR_RETURN(const std::vector<TextRange> own, places_of_last(name, std::string(member(last, name)->str())));
      if (has_all_of(prompt->text, own, content)) {
        cut_at(*prompt, prompt->text.find_last_not_of(" \t\r\n", own.back().end - 1) + 1);
        return prompt;
      }
    }
    // The template refuses or splits such a text: then a placeholder marks its place.
    messages.back() = with_marked(last, name, "Yes");
    limits_.n_steps = all_steps_;
    Result<RenderedPrompt> other = repaired(messages);
    if (!prompt && !other) return prompt.error();
    if (other) {
      ASSIGN_OR_RETURN(const std::vector<TextRange> own, places_of_last(name, "Yes"));
      if (!own.empty() && std::string_view(other->text).substr(own.back().begin).starts_with("Yes")) {
        cut_at(*other, own.back().begin);
        other->text += content;
        other->plain_ranges.push_back({own.back().begin, other->text.size()});
        return other;
      }
    }
    if (name == "content") {
      return unsupported("The chat template does not write the last message, so that nothing can go on from it.",
                         "continue_final_message");
    }
    // Reasoning that the template does not print does not reach the model, as in any earlier message.
    messages.pop_back();
    asks_ = true;
    TRY(define_all(jinja::JsonMarks::kAll));
    limits_.n_steps = all_steps_;
    return repaired(messages);
  }

  // Where the last message's member stands in the prompt that was rendered last.
  Result<std::vector<TextRange>> places_of_last(std::string_view name, std::string text) {
    ASSIGN_OR_RETURN(std::vector<Value> messages, parse_messages(input_.messages, jinja::JsonMarks::kNone));
    messages.back() = with_marked(messages.back(), name, std::move(text));
    limits_.n_steps = all_steps_;
    TRY(define_all(jinja::JsonMarks::kNone));
    Result<std::optional<RenderedPrompt>> prompt = once(messages, repairs_);
    TRY(define_all(jinja::JsonMarks::kAll));
    if (!prompt) return prompt.error();
    return (*prompt)->plain_ranges;
  }

  // Renders with the fewest repairs that the template accepts, then with plain tools too; returns its first refusal if
  // it accepts none.
  Result<RenderedPrompt> repaired(const std::vector<Value>& messages) {
    Result<std::optional<RenderedPrompt>> given = once(messages, 0);
    if (given) return **std::move(given);
    if (!compiled_.is_fitted) return given.error();
    for (const bool is_plain : {false, true}) {
      if (is_plain) {
        Value& tools = variables_.front().second;
        if (!tools.is(Kind::kList) || tools.items().empty()) break;
        tools = fit_tools(compiled_.form, tools, has_plain_tools_ = true);
      }
      for (const unsigned repairs : {0u, 1u, 2u, 4u, 8u, 3u, 5u, 6u, 9u, 10u, 12u, 7u, 11u, 13u, 14u, 15u}) {
        if (is_exhausted_) return given.error();
        if (repairs == 0 && !is_plain) continue;
        Result<std::optional<RenderedPrompt>> tried = once(messages, repairs);
        if (!tried || !*tried) continue;
        repairs_ = repairs;
        return **std::move(tried);
      }
    }
    return given.error();
  }

  // Nothing if some of the repairs had nothing to do.
  Result<std::optional<RenderedPrompt>> once(const std::vector<Value>& given, unsigned repairs) {
    jinja::Machine machine(*compiled_.program, limits_);
    std::vector<Value> messages = given;  // what is fitted is on the machine's meter, and goes before it
    if (input_.now) machine.set_time(*input_.now);
    std::string misfit;
    if (compiled_.is_fitted) {
      const unsigned wanted = repairs;
      messages = fit_messages(machine, compiled_.form, repairs, std::move(messages), misfit);
      if (repairs != wanted) return std::optional<RenderedPrompt>();
    }
    auto* list = new jinja::ListObject;
    Value all = Value::object(Kind::kList, list);
    for (const Value& message : messages) {
      list->items.push_back(with_reasoning(message));
      jinja::weigh(*list, list->items.back());
    }
    machine.define("messages", std::move(all));
    for (const auto& [name, value] : variables_) machine.define(name, value);
    Result<jinja::Text> text = machine.run();
    limits_.n_steps = std::max<int64_t>(machine.steps_left(), 0);
    if (text) {
      RenderedPrompt prompt{.text = std::move(text->bytes), .plain_ranges = std::move(text->marks)};
      prompt.n_undefined = machine.n_undefined();
      return std::optional(std::move(prompt));
    }
    Error error = text.error();
    is_exhausted_ = error.kind == ErrorKind::kExhausted;
    if (!misfit.empty()) error.message += " (" + misfit + ".)";
    return error;
  }

  const Compiled& compiled_;
  const ChatInput& input_;
  jinja::Limits limits_;  // with the steps that are left
  int64_t all_steps_ = 0;
  std::vector<std::pair<std::string, Value>> variables_;
  bool asks_ = false, is_exhausted_ = false, has_plain_tools_ = false;
  unsigned repairs_ = 0;
};

Result<RenderedPrompt> ChatTemplate::render(const ChatInput& input, const RenderBudget& budget) const {
  return Rendering(*compiled_, input, budget).run();
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
