// OpenAI's Responses: items of output, each begun, continued and ended by events that are numbered.
#include <algorithm>
#include <span>
#include <utility>

#include "base/json_writer.h"
#include "server/answer/generation.h"
#include "server/answer/logprobs_json.h"
#include "server/dialects/dialects.h"
#include "server/fields/body_parts.h"
#include "server/wire/api_error.h"

namespace ibid {
namespace {

struct OutputItem {
  PartKind kind = PartKind::kText;
  std::string id, call_id, name, text;
  const CallForm* form = nullptr;  // of a call; null: a plain function's
  std::string logprobs;            // of a text's tokens, where they are asked for: objects with commas between
  bool is_whole = false;
  bool is_custom() const { return form != nullptr && form->is_custom; }
  // The text that a custom tool gets: what the model wrote into its one argument.
  std::string custom_input() const {
    if (!is_whole) return "";
    const Result<Json> arguments = parse_json(text);
    const std::string* input = arguments ? text_at(*arguments, kCustomInput) : nullptr;
    return input != nullptr ? *input : text;
  }
  void add_logprobs(const std::string& more) {
    if (!more.empty()) (logprobs += logprobs.empty() ? "" : ",") += more;
  }
};

class ResponsesPrinter final : public AnswerPrinter {
 public:
  void write_events(const Generation& g, AnswerChoice& choice, size_t index, std::string& out) override;
  void write_end(const Generation&, std::string& out) override { out += "data: [DONE]\n\n"; }
  void write_choice(const Generation& g, const AnswerChoice& choice, size_t index, std::string& out) override;

 private:
  // An event; `members` begin with a comma.
  void event(const char* type, std::string_view members, std::string& out);
  void begin_item(const Generation& g, const AnswerPart& part, size_t index);
  void send_begin(std::string& out);
  void send_delta(std::string_view text, const std::string& logprobs, std::string& out);
  // What is not written yet of the tokens after the reasoning; it goes with the next text.
  void take_records(const Generation& g, const AnswerChoice& choice);
  void send_end(std::string& out);
  void take(const Generation& g, const AnswerPart& part, size_t index, std::string* out);
  std::string place(bool with_content) const;
  void end(const Generation& g, const AnswerChoice& choice, std::string* out);

  std::vector<OutputItem> items_;
  bool is_open_ = false;  // the last item
  bool begun_ = false;
  int64_t n_events_ = 0;
  int32_t n_records_ = 0;  // of the answer's tokens, as far as they came
  TokenTexts token_texts_;
  std::string logprobs_;  // of tokens whose text is to come
  std::string timings_;   // llama.cpp's, where they are asked for: a member of the next events, after a comma
};

// A member as Generation writes it into an object, for an event's members.
template <typename Write>
std::string as_member(Write write) {
  std::string object;
  JsonWriter json(object);
  json.begin_object();
  write(json);
  json.end_object();
  return "," + object.substr(1, object.size() - 2);
}

void write_item(JsonWriter& json, const OutputItem& item, const char* status, bool with_content) {
  json.begin_object().field("id", item.id);
  switch (item.kind) {
    case PartKind::kReasoning:
      json.field("type", "reasoning").key("summary").begin_array().end_array().key("content").begin_array();
      if (with_content) json.begin_object().field("type", "reasoning_text").field("text", item.text).end_object();
      json.end_array().field("status", status);
      break;
    case PartKind::kText:
      json.field("type", "message").field("status", status).field("role", "assistant").key("content").begin_array();
      if (with_content) {
        json.begin_object().field("type", "output_text").field("text", item.text).key("annotations").begin_array();
        json.end_array().key("logprobs").raw("[" + item.logprobs + "]").end_object();
      }
      json.end_array();
      break;
    case PartKind::kCall:
      json.field("type", item.is_custom() ? "custom_tool_call" : "function_call").field("status", status);
      json.field("call_id", item.call_id).field("name", item.form != nullptr ? item.form->name : item.name);
      if (item.form != nullptr && !item.form->space.empty()) json.field("namespace", item.form->space);
      if (item.is_custom()) {
        json.field("input", with_content ? item.custom_input() : "");
      } else {
        json.field("arguments", with_content ? item.text : "");
      }
  }
  json.end_object();
}

struct Failure {
  std::string code, message;
};

Failure failure_of(const Generation& g, const AnswerChoice& choice) {
  if (g.info().refusal != nullptr) return {g.info().refusal->code, g.info().refusal->message};
  return {"server_error", g.error_of(choice).message};
}

// The whole object; `choice`: how it ended, or null.
void write_response(const Generation& g, const std::vector<OutputItem>& items, const AnswerChoice* choice,
                    JsonWriter& json) {
  const GenerationInfo& info = g.info();
  const bool failed = choice != nullptr && choice->failed();
  const bool cut = choice != nullptr && choice->reason == FinishReason::kLength;
  json.begin_object().field("id", info.id).field("object", "response").field("created_at", info.created);
  json.key("completed_at");
  choice != nullptr && !failed ? json.integer(info.created) : json.null();
  json.field("status", choice == nullptr ? "in_progress" : failed ? "failed" : cut ? "incomplete" : "completed");
  json.key("incomplete_details");
  cut ? json.begin_object().field("reason", "max_output_tokens").end_object() : json.null();
  json.key("error");
  if (failed) {
    const Failure failure = failure_of(g, *choice);
    json.begin_object().field("code", failure.code).field("message", failure.message).end_object();
  } else {
    json.null();
  }
  json.field("model", info.model).key("seed").large_integer(info.seed);
  json.key("output").begin_array();
  for (size_t i = 0; choice != nullptr && i < items.size(); ++i)
    write_item(json, items[i], cut && i + 1 == items.size() ? "incomplete" : "completed", true);
  json.end_array();
  if (info.repeated) {
    for (const auto& [name, value] : *info.repeated->object()) json.key(name).value(value);
  }
  json.key("usage");
  if (choice == nullptr) {
    json.null();
  } else {
    const int64_t prompt = g.prompt_tokens(), completion = g.completion_tokens();
    json.begin_object().field("input_tokens", prompt).key("input_tokens_details").begin_object();
    json.field("cached_tokens", int64_t{g.cached_tokens()}).end_object().field("output_tokens", completion);
    json.key("output_tokens_details").begin_object().field("reasoning_tokens", int64_t{g.reasoning_tokens()});
    if (g.resumed_tokens() > 0) json.field("resumed_tokens", int64_t{g.resumed_tokens()});
    json.end_object();
    json.field("total_tokens", prompt + completion).end_object();
  }
  json.end_object();
}

void ResponsesPrinter::event(const char* type, std::string_view members, std::string& out) {
  ((out += "event: ") += type) += "\ndata: {\"type\":\"";
  ((out += type) += "\",\"sequence_number\":") += std::to_string(n_events_++);
  out += members;
  out += "}\n\n";
}

std::string ResponsesPrinter::place(bool with_content) const {
  std::string out =
      ",\"output_index\":" + std::to_string(items_.size() - 1) + ",\"item_id\":\"" + items_.back().id + '"';
  if (with_content) out += ",\"content_index\":0";
  return out;
}

void ResponsesPrinter::begin_item(const Generation& g, const AnswerPart& part, size_t index) {
  OutputItem item;
  item.kind = part.kind;
  if (part.kind == PartKind::kCall) {
    item.call_id = g.call_id(index, part.call, part.id);
    item.name = part.name;
    const std::vector<CallForm>& forms = g.info().call_forms;
    const auto form = std::ranges::find(forms, part.name, &CallForm::flat);
    if (form != forms.end()) item.form = &*form;
  }
  const char* prefix = part.kind == PartKind::kText   ? "msg_"
                       : part.kind != PartKind::kCall ? "rs_"
                       : item.is_custom()             ? "ctc_"
                                                      : "fc_";
  item.id = prefix + g.info().id.substr(5) + "_" + std::to_string(items_.size());
  items_.push_back(std::move(item));
  is_open_ = true;
}

void ResponsesPrinter::send_begin(std::string& out) {
  const OutputItem& item = items_.back();
  std::string members = ",\"output_index\":" + std::to_string(items_.size() - 1) + ",\"item\":";
  JsonWriter json(members);
  write_item(json, item, "in_progress", false);
  event("response.output_item.added", members, out);
  if (item.kind == PartKind::kText)
    event("response.content_part.added",
          place(true) + R"(,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]})", out);
  if (item.kind == PartKind::kReasoning)
    event("response.content_part.added", place(true) + R"(,"part":{"type":"reasoning_text","text":""})", out);
}

void ResponsesPrinter::send_delta(std::string_view text, const std::string& logprobs, std::string& out) {
  if (items_.back().is_custom()) return;  // its text is sent when it is whole
  const PartKind kind = items_.back().kind;
  std::string members = place(kind != PartKind::kCall) + ",\"delta\":";
  JsonWriter(members).string(text);
  if (kind == PartKind::kText) members += ",\"logprobs\":[" + logprobs + "]";
  members += timings_;
  event(kind == PartKind::kText        ? "response.output_text.delta"
        : kind == PartKind::kReasoning ? "response.reasoning_text.delta"
                                       : "response.function_call_arguments.delta",
        members, out);
}

void ResponsesPrinter::send_end(std::string& out) {
  const OutputItem& item = items_.back();
  std::string text;
  JsonWriter(text).string(item.text);
  if (item.kind == PartKind::kText) {
    const std::string logprobs = ",\"logprobs\":[" + item.logprobs + "]";
    event("response.output_text.done", place(true) + ",\"text\":" + text + logprobs, out);
    event("response.content_part.done",
          place(true) + R"(,"part":{"type":"output_text","annotations":[])" + logprobs + ",\"text\":" + text + "}",
          out);
  } else if (item.kind == PartKind::kReasoning) {
    event("response.reasoning_text.done", place(true) + ",\"text\":" + text, out);
    event("response.content_part.done", place(true) + R"(,"part":{"type":"reasoning_text","text":)" + text + "}", out);
  } else if (item.is_custom()) {
    std::string input;
    JsonWriter(input).string(item.custom_input());
    event("response.custom_tool_call_input.delta", place(false) + ",\"delta\":" + input, out);
    if (item.is_whole) event("response.custom_tool_call_input.done", place(false) + ",\"input\":" + input, out);
  } else if (item.is_whole) {
    std::string members = place(false) + ",\"name\":";
    JsonWriter(members).string(item.name);
    event("response.function_call_arguments.done", members + ",\"arguments\":" + text, out);
  }
}

// `out` null: nothing is written yet.
void ResponsesPrinter::take(const Generation& g, const AnswerPart& part, size_t index, std::string* out) {
  if (part.begins || !is_open_ || items_.back().kind != part.kind) {
    if (is_open_ && out != nullptr) {
      send_end(*out);
      std::string members = ",\"output_index\":" + std::to_string(items_.size() - 1) + ",\"item\":";
      JsonWriter json(members);
      write_item(json, items_.back(), "completed", true);
      event("response.output_item.done", members, *out);
    }
    begin_item(g, part, index);
    if (out != nullptr) send_begin(*out);
  }
  OutputItem& item = items_.back();
  item.text += part.text;
  item.is_whole = item.is_whole || part.ends;
  std::string logprobs;
  if (item.kind == PartKind::kText) item.add_logprobs(logprobs = std::exchange(logprobs_, {}));
  if (out != nullptr && !part.text.empty()) send_delta(part.text, logprobs, *out);
}

void ResponsesPrinter::take_records(const Generation& g, const AnswerChoice& choice) {
  if (!g.info().asked.want_logprobs) return;
  std::span<const TokenRecord> records = choice.records;
  if (n_records_ == 0) token_texts_ = choice.token_texts;
  const auto n_reasoning = static_cast<size_t>(std::max(0, choice.n_reasoning - choice.n_resumed - n_records_));
  n_records_ += static_cast<int32_t>(records.size());
  records = records.subspan(std::min(records.size(), n_reasoning));
  if (records.empty()) return;
  std::string list;
  JsonWriter json(list);
  write_token_logprobs(json, g.tokenizer(), records,
                       {.processed = g.info().processed_logprobs, .as_ids = g.info().asked.tokens_as_ids},
                       token_texts_);
  (logprobs_ += logprobs_.empty() ? "" : ",").append(list, 1, list.size() - 2);
}

// The last events, and what is kept of the response.
void ResponsesPrinter::end(const Generation& g, const AnswerChoice& choice, std::string* out) {
  const bool cut = choice.reason == FinishReason::kLength;
  // Of tokens that have no text of their own, such as the one that ends an answer.
  if (is_open_ && items_.back().kind == PartKind::kText) items_.back().add_logprobs(std::exchange(logprobs_, {}));
  if (is_open_ && out != nullptr) {
    send_end(*out);
    std::string members = ",\"output_index\":" + std::to_string(items_.size() - 1) + ",\"item\":";
    JsonWriter json(members);
    write_item(json, items_.back(), cut ? "incomplete" : "completed", true);
    event("response.output_item.done", members, *out);
  }
  is_open_ = false;
  std::string response;
  JsonWriter json(response);
  write_response(g, items_, &choice, json);
  if (out != nullptr) {
    if (choice.failed()) {
      const Failure failure = failure_of(g, choice);
      std::string members = ",\"code\":\"" + failure.code + "\",\"param\":null,\"message\":";
      JsonWriter error(members);
      error.string(failure.message);
      write_resume(g.error_of(choice), error);
      event("error", members, *out);
    }
    event(choice.failed() ? "response.failed"
          : cut           ? "response.incomplete"
                          : "response.completed",
          ",\"response\":" + response + timings_, *out);
  }
  if (!g.info().stored) return;
  StoredResponse& stored = *g.info().stored;
  Json message = chat_message("assistant", Json());
  Json::Array calls;
  std::string text, reasoning;
  for (const OutputItem& item : items_) {
    if (item.kind == PartKind::kText) text += item.text;
    if (item.kind == PartKind::kReasoning) reasoning += item.text;
    if (item.kind == PartKind::kCall) calls.push_back(function_call(item.call_id, item.name, item.text));
  }
  if (!text.empty() || calls.empty()) (*message.object())[1].second = Json(std::move(text));
  if (!reasoning.empty()) set(message, "reasoning_content", Json(std::move(reasoning)));
  if (!calls.empty()) set(message, "tool_calls", Json(std::move(calls)));
  stored.messages.push_back(std::move(message));
  stored.response = std::move(response);
  // Before its client learns its id: it may ask for it at once.
  if (g.info().keeper != nullptr && !choice.failed()) g.info().keeper->put(g.info().stored, g.info().clock->now());
}

void ResponsesPrinter::write_events(const Generation& g, AnswerChoice& choice, size_t index, std::string& out) {
  const std::vector<AnswerPart> parts = std::exchange(choice.parts, {});
  take_records(g, choice);
  choice.records.clear();
  if (!std::exchange(begun_, true)) {
    std::string members = ",\"response\":";
    JsonWriter json(members);
    write_response(g, items_, nullptr, json);
    event("response.created", members, out);
    event("response.in_progress", members, out);
  }
  for (const Generation::Progress& progress : g.take_progress(choice, index)) {
    std::string members = as_member([&](JsonWriter& json) { progress.write(json); }) + ",\"response\":";
    JsonWriter json(members);
    write_response(g, items_, nullptr, json);
    event("response.in_progress", members, out);
  }
  if (g.info().asked.timings) timings_ = as_member([&](JsonWriter& json) { g.write_timings(json); });
  for (const AnswerPart& part : parts) take(g, part, index, &out);
  if (!choice.finished || std::exchange(choice.end_written, true)) return;
  if (items_.empty() && !choice.failed()) take(g, AnswerPart(), index, &out);
  end(g, choice, &out);
}

void ResponsesPrinter::write_choice(const Generation& g, const AnswerChoice& choice, size_t index, std::string& out) {
  take_records(g, choice);
  for (const AnswerPart& part : choice.parts) take(g, part, index, nullptr);
  if (items_.empty()) take(g, AnswerPart(), index, nullptr);
  end(g, choice, nullptr);
  JsonWriter json(out);
  write_response(g, items_, &choice, json);
}

}  // namespace

std::unique_ptr<AnswerPrinter> make_responses_printer() { return std::make_unique<ResponsesPrinter>(); }

}  // namespace ibid
