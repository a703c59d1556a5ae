// Messages, as Anthropic writes them: blocks of content, each begun, continued and ended by events of its own.
#include <utility>

#include "base/json_writer.h"
#include "server/answer/generation.h"
#include "server/wire/api_error.h"

namespace ibid {
namespace {

class MessagesPrinter final : public AnswerPrinter {
 public:
  void write_events(const Generation& g, AnswerChoice& choice, size_t index, std::string& out) override;
  void write_end(const Generation&, std::string&) override {}
  void write_choice(const Generation& g, const AnswerChoice& choice, size_t index, std::string& out) override;
  std::string_view still_here() const override { return "event: ping\ndata: {\"type\":\"ping\"}\n\n"; }

 private:
  void event(const char* type, std::string_view members, std::string& out);
  void begin_message(const Generation& g, std::string& out);
  void begin_block(const Generation& g, const AnswerPart& part, size_t index, std::string& out);
  void end_block(std::string& out);

  bool begun_ = false;
  int64_t n_blocks_ = 0;
  bool is_open_ = false;  // the last block
  PartKind kind_ = PartKind::kText;
};

void write_message_usage(const Generation& g, JsonWriter& json) {
  const int64_t cached = g.cached_tokens();
  json.begin_object().field("input_tokens", g.prompt_tokens() - cached).field("cache_read_input_tokens", cached);
  json.field("cache_creation_input_tokens", int64_t{0}).field("output_tokens", int64_t{g.completion_tokens()});
  json.end_object();
}

void write_message_head(const Generation& g, JsonWriter& json) {
  json.field("id", g.info().id).field("type", "message").field("role", "assistant").field("model", g.info().model);
  json.key("seed").large_integer(g.info().seed);
}

void write_message_stop(const AnswerChoice& choice, JsonWriter& json) {
  const bool by_text = choice.reason == FinishReason::kStop && !choice.stop_text.empty();
  const char* reason = choice.asks_for_tools()                  ? "tool_use"
                       : by_text                                ? "stop_sequence"
                       : choice.reason == FinishReason::kLength ? "max_tokens"
                       : choice.reason == FinishReason::kSafety ? "refusal"
                                                                : "end_turn";
  json.field("stop_reason", reason).key("stop_sequence");
  by_text ? json.string(choice.stop_text) : json.null();
}

void MessagesPrinter::event(const char* type, std::string_view members, std::string& out) {
  ((out += "event: ") += type) += "\ndata: {\"type\":\"";
  ((out += type) += "\"") += members;
  out += "}\n\n";
}

void MessagesPrinter::begin_message(const Generation& g, std::string& out) {
  std::string members = ",\"message\":";
  JsonWriter json(members);
  json.begin_object();
  write_message_head(g, json);
  json.key("content").begin_array().end_array().key("stop_reason").null().key("stop_sequence").null().key("usage");
  write_message_usage(g, json);
  json.end_object();
  event("message_start", members, out);
}

void MessagesPrinter::begin_block(const Generation& g, const AnswerPart& part, size_t index, std::string& out) {
  std::string members = ",\"index\":" + std::to_string(n_blocks_) + ",\"content_block\":";
  JsonWriter json(members);
  json.begin_object();
  switch (part.kind) {
    case PartKind::kText:
      json.field("type", "text").field("text", "");
      break;
    case PartKind::kReasoning:
      json.field("type", "thinking").field("thinking", "").field("signature", "");
      break;
    case PartKind::kCall:
      json.field("type", "tool_use").field("id", g.call_id(index, part.call, part.id)).field("name", part.name);
      json.key("input").begin_object().end_object();
  }
  json.end_object();
  event("content_block_start", members, out);
  is_open_ = true;
  kind_ = part.kind;
}

void MessagesPrinter::end_block(std::string& out) {
  if (!std::exchange(is_open_, false)) return;
  event("content_block_stop", ",\"index\":" + std::to_string(n_blocks_++), out);
}

void MessagesPrinter::write_events(const Generation& g, AnswerChoice& choice, size_t index, std::string& out) {
  const std::vector<AnswerPart> parts = std::exchange(choice.parts, {});
  choice.records.clear();
  if (!parts.empty() || (choice.finished && !choice.failed())) {
    if (!std::exchange(begun_, true)) begin_message(g, out);
  }
  for (const AnswerPart& part : parts) {
    if (part.begins || !is_open_ || kind_ != part.kind) {
      end_block(out);
      begin_block(g, part, index, out);
    }
    if (part.text.empty()) continue;
    std::string members = ",\"index\":" + std::to_string(n_blocks_) + ",\"delta\":";
    JsonWriter json(members);
    json.begin_object();
    if (part.kind == PartKind::kText) json.field("type", "text_delta").field("text", part.text);
    if (part.kind == PartKind::kReasoning) json.field("type", "thinking_delta").field("thinking", part.text);
    if (part.kind == PartKind::kCall) json.field("type", "input_json_delta").field("partial_json", part.text);
    json.end_object();
    event("content_block_delta", members, out);
  }
  if (!choice.finished || std::exchange(choice.end_written, true)) return;
  if (choice.failed()) return event("error", "," + messages_error_members(g.error_of(choice)), out);
  end_block(out);
  std::string members = ",\"delta\":";
  JsonWriter json(members);
  json.begin_object();
  write_message_stop(choice, json);
  json.end_object();
  members += ",\"usage\":";
  JsonWriter usage(members);
  write_message_usage(g, usage);
  event("message_delta", members, out);
  event("message_stop", "", out);
}

void MessagesPrinter::write_choice(const Generation& g, const AnswerChoice& choice, size_t index, std::string& out) {
  JsonWriter json(out);
  json.begin_object();
  write_message_head(g, json);
  json.key("content").begin_array();
  const std::vector<AnswerCall> calls = calls_of(choice);
  size_t n_calls = 0;
  for (size_t i = 0; i < choice.parts.size(); ++i) {
    const AnswerPart& part = choice.parts[i];
    if (part.kind == PartKind::kCall) {
      if (!part.begins) continue;
      const AnswerCall& call = calls[n_calls++];
      json.begin_object().field("type", "tool_use").field("id", g.call_id(index, part.call, part.id));
      json.field("name", part.name).key("input").raw(call.is_whole ? call.arguments : "{}").end_object();
    } else if (part.kind == PartKind::kText) {
      json.begin_object().field("type", "text").field("text", part.text).end_object();
    } else {
      json.begin_object().field("type", "thinking").field("thinking", part.text).field("signature", "").end_object();
    }
  }
  json.end_array();
  write_message_stop(choice, json);
  json.key("usage");
  write_message_usage(g, json);
  json.end_object();
}

}  // namespace

std::unique_ptr<AnswerPrinter> make_messages_printer() { return std::make_unique<MessagesPrinter>(); }

}  // namespace ibid
