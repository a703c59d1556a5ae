// Ollama's chat and generate: one JSON object a line. Calls come whole, because their arguments are objects there.
#include <algorithm>
#include <utility>

#include "base/json_writer.h"
#include "server/answer/generation.h"
#include "server/dialects/dialects.h"
#include "server/fields/body_parts.h"
#include "server/wire/api_error.h"

namespace ibid {
namespace {

// JSON whose strings have no line's end as it is, but which may have one between its parts.
std::string on_one_line(std::string json) {
  std::ranges::replace_if(
      json, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return json;
}

class OllamaPrinter final : public AnswerPrinter {
 public:
  explicit OllamaPrinter(bool generate) : generate_(generate) {}

  void write_events(const Generation& g, AnswerChoice& choice, size_t index, std::string& out) override;
  void write_end(const Generation&, std::string&) override {}
  void write_choice(const Generation& g, const AnswerChoice& choice, size_t index, std::string& out) override;
  std::string_view stream_type() const override { return "application/x-ndjson"; }
  std::string_view still_here() const override { return ""; }

 private:
  void write_line(const Generation& g, std::string_view text, std::string_view thinking,
                  std::span<const AnswerCall> calls, const AnswerChoice* ended, std::string& out) const;

  const bool generate_;
  AnswerCall call_;  // that has begun
};

void OllamaPrinter::write_line(const Generation& g, std::string_view text, std::string_view thinking,
                               std::span<const AnswerCall> calls, const AnswerChoice* ended, std::string& out) const {
  JsonWriter json(out);
  json.begin_object().field("model", g.info().model).field("created_at", rfc3339(g.info().created));
  if (!generate_) json.key("message").begin_object().field("role", "assistant");
  json.field(generate_ ? "response" : "content", text);
  if (!thinking.empty()) json.field("thinking", thinking);
  if (!calls.empty()) {
    json.key("tool_calls").begin_array();
    for (const AnswerCall& call : calls) {
      json.begin_object().key("function").begin_object().field("index", int64_t{call.number}).field("name", call.name);
      json.key("arguments").raw(on_one_line(call.arguments)).end_object().end_object();
    }
    json.end_array();
  }
  if (!generate_) json.end_object();
  json.key("done").boolean(ended != nullptr);
  if (ended != nullptr) {
    const auto nanoseconds = [](double seconds) { return static_cast<int64_t>(seconds * 1e9); };
    const RequestTimes times = g.times(g.info().clock != nullptr ? g.info().clock->now() : ended->last_time);
    json.key("seed").large_integer(g.info().seed);
    json.field("done_reason", ended->reason == FinishReason::kLength ? "length" : "stop");
    json.field("total_duration", nanoseconds(times.total)).field("load_duration", int64_t{0});
    json.field("prompt_eval_count", int64_t{g.prompt_tokens()});
    json.field("prompt_eval_duration", nanoseconds(times.prefill));
    json.field("eval_count", int64_t{g.completion_tokens()}).field("eval_duration", nanoseconds(times.decode));
  }
  json.end_object();
  out += '\n';
}

void OllamaPrinter::write_events(const Generation& g, AnswerChoice& choice, size_t, std::string& out) {
  const std::vector<AnswerPart> parts = std::exchange(choice.parts, {});
  choice.records.clear();
  for (const AnswerPart& part : parts) {
    if (part.kind == PartKind::kText) write_line(g, part.text, "", {}, nullptr, out);
    if (part.kind == PartKind::kReasoning) write_line(g, "", part.text, {}, nullptr, out);
    if (part.kind != PartKind::kCall) continue;
    if (part.begins) call_ = {part.call, part.name, part.id, "", false};
    call_.arguments += part.text;
    if (part.ends) write_line(g, "", "", std::span(&call_, 1), nullptr, out);
  }
  if (!choice.finished || std::exchange(choice.end_written, true)) return;
  if (!choice.failed()) return write_line(g, "", "", {}, &choice, out);
  const ApiError error = g.error_of(choice);
  JsonWriter json(out);
  json.begin_object().field("error", error.message);
  write_resume(error, json);
  json.end_object();
  out += '\n';
}

void OllamaPrinter::write_choice(const Generation& g, const AnswerChoice& choice, size_t, std::string& out) {
  std::vector<AnswerCall> calls = calls_of(choice);
  std::erase_if(calls, [](const AnswerCall& call) { return !call.is_whole; });
  write_line(g, choice.text_of(PartKind::kText), choice.text_of(PartKind::kReasoning), calls, &choice, out);
}

}  // namespace

std::unique_ptr<AnswerPrinter> make_ollama_printer(bool generate) { return std::make_unique<OllamaPrinter>(generate); }

}  // namespace ibid
