// ChatTemplate: a model's chat template (our own implementation of a Jinja subset), compiled once; renders messages to
// a prompt.
//
// Renders byte for byte what Python's jinja2 renders as transformers sets it up (ImmutableSandboxedEnvironment,
// trim_blocks, lstrip_blocks, loopcontrols, generation blocks, its own tojson); docs/developers/text.md lists what is
// refused. Templates and messages are bytes from outside: rendering runs under budgets and at worst ends with an Error.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja/message_form.h"
#include "text/output/answer_format.h"
#include "text/tokenizer/tokenizer.h"  // TextRange

namespace ibid {

// Budgets of a rendering. Exceeding one is ErrorKind::kExhausted. The input's own size is added to memory and output
// (four times) and to steps, so that a long conversation has a larger budget.
struct RenderBudget {
  int64_t n_steps = 2'000'000;     // syntax nodes, or some 64 bytes or 8 items of bulk work
  size_t memory_bytes = 16 << 20;  // of values and output alive at once
  size_t output_bytes = 8 << 20;
  int depth = 600;  // evaluations inside each other; a macro's call takes about six
};

struct ChatInput {
  std::string messages = "[]";  // JSON: a list of objects
  std::string tools;            // JSON list; empty: the template sees none
  std::string documents;        // JSON list; empty: none
  bool add_generation_prompt = true;
  // The prompt ends where the last message's own text ends, so that the answer continues it: at the end of its content,
  // or of its reasoning if it has no content. If it has neither, a new answer begins.
  bool continues_final = false;
  std::string bos_token, eos_token;  // as spelled; the template's variables
  // More variables for the template, as (name, JSON); they win over the ones above.
  std::vector<std::pair<std::string, std::string>> extra;
  std::optional<std::chrono::system_clock::time_point> now;  // for strftime_now; absent: the clock
};

// The spellings of the vocabulary's bos and eos, as the tokenizer reads them back (EncodeOptions::parse_special).
void name_tokens(const Tokenizer& tokenizer, ChatInput& input);

struct RenderedPrompt {
  std::string text;
  // The bytes that users wrote (contents, tool results, tool definitions, documents, extra variables): ascending,
  // disjoint. Special tokens spelled there are text: hand them to EncodeOptions::plain_ranges. A message's role is
  // the template's word where it is letters, digits, '_' or '-' only, because templates build special tokens from it.
  std::vector<TextRange> plain_ranges;
  bool ends_in_message = false;    // it ends with the last message's own text (ChatInput::continues_final)
  bool ends_in_reasoning = false;  // ... which is its reasoning
  int n_undefined = 0;             // undefined values, which the template printed as nothing
};

// Immutable; may be shared by threads.
class ChatTemplate {
 public:
  // Errors name line and column. At most 256 KiB of source. Messages and tools are rendered as they are given.
  static Result<ChatTemplate> compile(std::string_view source);
  // The model's template, which gets its messages in the form that it reads (form()); if the model has none, ChatML
  // (kDefaultSource), and `warning` reports it. A history that the template refuses is rendered again with the repairs
  // that message_form.h lists, within the rest of the budget.
  static Result<ChatTemplate> for_model(std::string_view source, std::string* warning = nullptr);

  Result<RenderedPrompt> render(const ChatInput& input, const RenderBudget& budget = {}) const;

  // True where the template mentions the variable (tools, documents, enable_thinking ...).
  bool mentions(std::string_view variable) const;
  const std::string& source() const;
  // Whether it describes the tools to the model itself; else the server does, in the generic format.
  bool shows_tools() const { return mentions("tools") || wants_functions(); }
  // Whether it needs the functions themselves as text, and nothing if there are none (Firefunction's).
  bool wants_functions() const;
  // How a model with this template writes reasoning and calls: from the template, from how it prints a call, and from
  // whether the template or the server describes the tools.
  AnswerFormat answer_format() const;
  const MessageForm& form() const;

  static const std::string_view kDefaultSource;

 private:
  struct Compiled;
  class Rendering;
  explicit ChatTemplate(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace ibid
