// Chat completions and completions, as OpenAI writes them, with vLLM's and our own fields.
#include <algorithm>
#include <utility>

#include "base/json_writer.h"
#include "server/answer/generation.h"
#include "server/answer/logprobs_json.h"
#include "server/answer/trace_json.h"
#include "server/wire/api_error.h"

namespace ibid {
namespace {

// What of a choice is written: all of it, some of it in a stream, or how it ended.
enum class Part : uint8_t { kWhole, kPiece, kEnd };

class OpenAiPrinter final : public AnswerPrinter {
 public:
  explicit OpenAiPrinter(OpenAiForm form)
      : chat_(form != OpenAiForm::kCompletions), has_one_prompt_(form == OpenAiForm::kChat) {}

  void write_events(const Generation& g, AnswerChoice& choice, size_t index, std::string& out) override;
  void write_end(const Generation& g, std::string& out) override;
  void write_begin(const Generation& g, std::string& out) override;
  void write_choice(const Generation& g, const AnswerChoice& choice, size_t index, std::string& out) override;
  void write_rest(const Generation& g, std::string& out) override;

 private:
  void write_head(const Generation& g, JsonWriter& json, const char* object) const;
  void write_usage(const Generation& g, JsonWriter& json) const;
  void write_extras(const Generation& g, JsonWriter& json, size_t index, const AnswerChoice& choice) const;
  void write_prompt(const Generation& g, JsonWriter& json, size_t index, const AnswerChoice& choice) const;
  void write_event(const Generation& g, size_t index, Part part, const AnswerPart* piece, AnswerChoice& choice,
                   std::string& out);
  void write_choice(const Generation& g, JsonWriter& json, size_t index, Part part, const AnswerPart* piece,
                    const AnswerChoice& choice, TokenTexts& texts) const;
  void write_message(const Generation& g, JsonWriter& json, size_t index, const AnswerChoice& choice) const;
  void write_delta(const Generation& g, JsonWriter& json, size_t index, const AnswerPart* piece,
                   const AnswerChoice& choice) const;
  void write_progress(const Generation& g, const Generation::Progress& progress, std::string& out) const;
  // A chat that echoes the assistant's last message.
  bool has_last_words(const Generation& g) const {
    return chat_ && g.info().asked.echo && !g.info().prompt_texts[0].empty();
  }
  const char* chunk() const { return chat_ ? "chat.completion.chunk" : "text_completion"; }

  const bool chat_;
  const bool has_one_prompt_;
  bool trace_begun_ = false;  // the stream has its trace_header
};

void OpenAiPrinter::write_head(const Generation& g, JsonWriter& json, const char* object) const {
  const GenerationInfo& info = g.info();
  json.field("id", info.id).field("object", object).field("created", info.created).field("model", info.model);
  json.field("system_fingerprint", info.fingerprint).key("seed").large_integer(info.seed);
  if (info.asked.verifier == Verifier::kRejection) json.field("exact", "distribution");
  if (info.asked.verifier == Verifier::kTypical) json.key("exact").boolean(false);
}

void OpenAiPrinter::write_usage(const Generation& g, JsonWriter& json) const {
  const int64_t prompt = g.prompt_tokens(), completion = g.completion_tokens();
  json.begin_object().field("prompt_tokens", prompt).field("completion_tokens", completion);
  json.field("total_tokens", prompt + completion);
  json.key("prompt_tokens_details").begin_object().field("cached_tokens", int64_t{g.cached_tokens()}).end_object();
  // How many there were depends on what else ran; so answers contain it only on request.
  if (g.info().asked.reports_drafts || g.info().reasoning || g.resumed_tokens() > 0) {
    json.key("completion_tokens_details").begin_object();
    if (g.resumed_tokens() > 0) json.field("resumed_tokens", int64_t{g.resumed_tokens()});
    if (g.info().reasoning) json.field("reasoning_tokens", int64_t{g.reasoning_tokens()});
    if (g.info().asked.reports_drafts) {
      json.field("accepted_prediction_tokens", int64_t{g.accepted_tokens()});
      json.field("rejected_prediction_tokens", int64_t{g.drafted_tokens() - g.accepted_tokens()});
    }
    json.end_object();
  }
  json.end_object();
}

void OpenAiPrinter::write_extras(const Generation& g, JsonWriter& json, size_t index,
                                 const AnswerChoice& choice) const {
  const GenerationInfo& info = g.info();
  if (info.asked.return_token_ids) {
    json.key("token_ids").begin_array();
    for (const TokenRecord& record : choice.records) json.integer(raw(record.chosen.token));
    json.end_array();
  }
  // With which the answer's ids can be resumed elsewhere.
  if (info.asked.return_token_ids && info.uses_mirostat && choice.n_tokens > 0)
    json.key("mirostat_mu").number(static_cast<double>(choice.mirostat_mu));  // all of its digits
  if (info.trace) {
    json.key("trace");
    write_trace(json, choice.records, info.seed + index % static_cast<size_t>(info.n), *info.trace);
  }
  if (has_one_prompt_) return;
  if (!info.has_prompt_logprobs() && !info.asked.stream) json.key("prompt_logprobs").null();
  if (!info.asked.return_token_ids && !info.asked.stream) json.key("prompt_token_ids").null();
  write_prompt(g, json, index, choice);
}

// As vLLM has them: in the first choice of each prompt of completions and batches, beside the choices of a chat.
void OpenAiPrinter::write_prompt(const Generation& g, JsonWriter& json, size_t index,
                                 const AnswerChoice& choice) const {
  const GenerationInfo& info = g.info();
  if (choice.started || index % static_cast<size_t>(info.n) != 0) return;
  if (info.asked.return_token_ids) {
    json.key("prompt_token_ids").begin_array();
    for (const TokenId id : info.prompt_ids[index / static_cast<size_t>(info.n)]) json.integer(raw(id));
    json.end_array();
  }
  if (!info.has_prompt_logprobs()) return;
  json.key("prompt_logprobs");
  write_prompt_logprobs(json, g.tokenizer(), info.prompt_lens[index / static_cast<size_t>(info.n)],
                        g.prompt_of(index).records);
}

// The members of vLLM's NIXL connector, which routers hand to the replica that decodes. There are no blocks to fetch:
// it finds the prompt in its own prefix cache or computes it.
void write_transfer(const Generation& g, JsonWriter& json) {
  json.key("kv_transfer_params").begin_object();
  json.key("do_remote_prefill").boolean(true).key("do_remote_decode").boolean(false);
  json.key("remote_block_ids").begin_array().end_array();
  for (const char* name : {"remote_engine_id", "remote_host", "remote_port"}) json.key(name).null();
  json.field("remote_request_id", g.info().id).field("remote_num_tokens", int64_t{g.prompt_tokens()});
  json.field("tp_size", int64_t{1}).end_object();
}

// Both names of the field: DeepSeek's and llama.cpp's, and that of OpenRouter and newer vLLM.
void write_reasoning(JsonWriter& json, std::string_view text) {
  json.field("reasoning_content", text).field("reasoning", text);
}

void OpenAiPrinter::write_message(const Generation& g, JsonWriter& json, size_t index,
                                  const AnswerChoice& choice) const {
  const bool calls = choice.has(PartKind::kCall);
  json.field("role", "assistant");
  const std::string text = (has_last_words(g) ? g.info().prompt_texts[0] : "") + choice.text_of(PartKind::kText);
  json.key("content");
  calls&& text.empty() ? json.null() : json.string(text);
  if (choice.has(PartKind::kReasoning)) write_reasoning(json, choice.text_of(PartKind::kReasoning));
  json.key("refusal").null();
  if (!calls) return;
  json.key("tool_calls").begin_array();
  for (const AnswerCall& call : calls_of(choice)) {
    json.begin_object().field("id", g.call_id(index, call.number, call.id)).field("type", "function");
    json.key("function").begin_object().field("name", call.name).field("arguments", call.arguments);
    json.end_object().end_object();
  }
  json.end_array();
}

// Id and name once: clients add up what comes again.
void OpenAiPrinter::write_delta(const Generation& g, JsonWriter& json, size_t index, const AnswerPart* piece,
                                const AnswerChoice& choice) const {
  if (!choice.started) json.field("role", "assistant").key("content").null();
  if (piece == nullptr) return;
  switch (piece->kind) {
    case PartKind::kText:
      json.field("content", piece->text);
      return;
    case PartKind::kReasoning:
      write_reasoning(json, piece->text);
      return;
    case PartKind::kCall:
      break;
  }
  json.key("tool_calls").begin_array().begin_object().field("index", int64_t{piece->call});
  if (piece->begins) json.field("id", g.call_id(index, piece->call, piece->id)).field("type", "function");
  json.key("function").begin_object();
  if (piece->begins) json.field("name", piece->name);
  json.field("arguments", piece->text).end_object().end_object().end_array();
}

void OpenAiPrinter::write_choice(const Generation& g, JsonWriter& json, size_t index, Part part,
                                 const AnswerPart* piece, const AnswerChoice& choice, TokenTexts& texts) const {
  const GenerationInfo& info = g.info();
  const size_t prompt = index / static_cast<size_t>(info.n);
  json.begin_object().field("index", static_cast<int64_t>(index));
  if (chat_) {
    json.key(part == Part::kWhole ? "message" : "delta").begin_object();
    part == Part::kWhole ? write_message(g, json, index, choice) : write_delta(g, json, index, piece, choice);
    json.end_object();
  } else {
    const bool echo = info.asked.echo && !choice.started;
    const std::string text = part == Part::kWhole ? choice.text_of(PartKind::kText)
                             : piece != nullptr   ? piece->text
                                                  : "";
    json.field("text", echo ? info.prompt_texts[prompt] + text : text);
  }
  const LogprobExtras extras{
      .processed = info.processed_logprobs, .ids = info.asked.return_token_ids, .as_ids = info.asked.tokens_as_ids};
  json.key("logprobs");
  if (!info.asked.want_logprobs || (part != Part::kWhole && piece == nullptr && choice.records.empty())) {
    json.null();
  } else if (chat_) {
    write_chat_logprobs(json, g.tokenizer(), choice.records, extras, texts);
  } else {
    std::span<const TokenId> ids;
    if (info.asked.echo && !choice.started) ids = info.prompt_ids[prompt];
    write_completion_logprobs(json, g.tokenizer(), ids, g.prompt_of(index).records, choice.records, extras, texts);
  }
  json.key("finish_reason");
  const bool ended = part != Part::kPiece;
  if (ended) {
    json.string(choice.asks_for_tools() ? "tool_calls" : openai_finish_reason(choice.reason));
  } else {
    json.null();
  }
  if (ended) {
    json.key("stop_reason");
    if (choice.reason == FinishReason::kStop && !choice.stop_text.empty()) {
      json.string(choice.stop_text);
    } else if (choice.reason == FinishReason::kStop && choice.last_token != TokenId::kNone) {
      json.integer(raw(choice.last_token));
    } else {
      json.null();
    }
  }
  if (ended && !info.not_held.empty()) {
    json.key("not_held").begin_array();
    for (const std::string& sentence : info.not_held) json.string(sentence);
    json.end_array();
  }
  if (ended && info.searches) json.key("score").number(choice.score);
  write_extras(g, json, index, choice);
  json.end_object();
}

// The tokens' records go with the first piece.
void OpenAiPrinter::write_event(const Generation& g, size_t index, Part part, const AnswerPart* piece,
                                AnswerChoice& choice, std::string& out) {
  const GenerationInfo& info = g.info();
  out += "data: ";
  JsonWriter json(out);
  json.begin_object();
  write_head(g, json, chunk());
  if (info.trace && !std::exchange(trace_begun_, true)) json.key("trace_header").raw(info.trace->header);
  json.key("choices").begin_array();
  write_choice(g, json, index, part, piece, choice, choice.token_texts);
  json.end_array();
  if (has_one_prompt_) write_prompt(g, json, index, choice);
  if (info.asked.continuous_usage) {
    json.key("usage");
    write_usage(g, json);
  } else if (info.asked.include_usage) {
    json.key("usage").null();
  }
  if (info.asked.timings && (piece != nullptr || part == Part::kEnd)) g.write_timings(json);
  json.end_object();
  out += "\n\n";
  choice.started = true;
  choice.records.clear();
}

void OpenAiPrinter::write_progress(const Generation& g, const Generation::Progress& progress, std::string& out) const {
  out += "data: ";
  JsonWriter json(out);
  json.begin_object();
  write_head(g, json, chunk());
  json.key("choices").begin_array().end_array();
  progress.write(json);
  json.end_object();
  out += "\n\n";
}

// As OpenAI does: the role alone, then the text, then an event with the reason and without text. A completion that has
// no text begins all the same where it echoes its prompt.
void OpenAiPrinter::write_events(const Generation& g, AnswerChoice& choice, size_t index, std::string& out) {
  const std::vector<AnswerPart> parts = std::exchange(choice.parts, {});
  for (const Generation::Progress& progress : g.take_progress(choice, index)) write_progress(g, progress, out);
  // Tokens without text of their own yet, of an answer that has failed: their ids and log-probabilities are all there
  // is.
  const bool has_rest = choice.failed() && !choice.records.empty();
  const bool has_something = !parts.empty() || has_rest || (choice.finished && !choice.failed());
  if (chat_ && !choice.started && has_something) {
    std::vector<TokenRecord> records = std::exchange(choice.records, {});
    write_event(g, index, Part::kPiece, nullptr, choice, out);
    const AnswerPart last = {.text = has_last_words(g) ? g.info().prompt_texts[0] : ""};
    if (!last.text.empty()) write_event(g, index, Part::kPiece, &last, choice, out);
    choice.records = std::move(records);
  }
  // Text that may be part of a stop is held back by the engine; its tokens' records go with the next text.
  for (const AnswerPart& part : parts) write_event(g, index, Part::kPiece, &part, choice, out);
  const bool must_begin = choice.finished && !choice.started && g.info().asked.echo;
  if ((must_begin && !choice.failed()) || (choice.failed() && !choice.records.empty())) {
    const AnswerPart nothing;
    write_event(g, index, Part::kPiece, &nothing, choice, out);
  }
  if (!choice.finished || std::exchange(choice.end_written, true)) return;
  if (choice.failed()) {
    out += "data: " + error_json(g.error_of(choice)) + "\n\n";
  } else {
    write_event(g, index, Part::kEnd, nullptr, choice, out);
  }
}

void OpenAiPrinter::write_end(const Generation& g, std::string& out) {
  const GenerationInfo& info = g.info();
  if (info.asked.include_usage || info.asked.ledger) {
    out += "data: ";
    JsonWriter json(out);
    json.begin_object();
    write_head(g, json, chunk());
    json.key("choices").begin_array().end_array();
    if (info.asked.include_usage) {
      json.key("usage");
      write_usage(g, json);
    }
    if (info.asked.timings) g.write_timings(json);
    if (info.asked.ledger) g.write_ledger(json);
    json.end_object();
    out += "\n\n";
  }
  out += "data: [DONE]\n\n";
}

void OpenAiPrinter::write_begin(const Generation& g, std::string& out) {
  JsonWriter json(out);
  json.begin_object();
  write_head(g, json, chat_ ? "chat.completion" : "text_completion");
  if (g.info().trace) json.key("trace_header").raw(g.info().trace->header);
  json.key("choices").begin_array();
}

void OpenAiPrinter::write_choice(const Generation& g, const AnswerChoice& choice, size_t index, std::string& out) {
  JsonWriter json(out);
  TokenTexts texts = choice.token_texts;  // after what the answer had before it was resumed
  write_choice(g, json, index, Part::kWhole, nullptr, choice, texts);
}

void OpenAiPrinter::write_rest(const Generation& g, std::string& out) {
  JsonWriter json(out);
  json.end_array();
  if (has_one_prompt_) write_prompt(g, json, 0, g.choices()[0]);
  if (has_one_prompt_ && !g.info().has_prompt_logprobs()) json.key("prompt_logprobs").null();
  json.key("usage");
  write_usage(g, json);
  if (g.info().asked.is_prefill) write_transfer(g, json);
  if (g.info().asked.timings) g.write_timings(json);
  if (g.info().asked.ledger) g.write_ledger(json);
  if (g.info().asked.verbose) json.key("__verbose").begin_object().field("prompt", g.info().rendered).end_object();
  json.end_object();
}

}  // namespace

std::unique_ptr<AnswerPrinter> make_openai_printer(OpenAiForm form) { return std::make_unique<OpenAiPrinter>(form); }

}  // namespace ibid
