#include "server/answer/output_lines.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/json.h"
#include "base/json_writer.h"
#include "server/answer/generation.h"
#include "server/wire/api_error.h"

namespace ibid {
namespace {

constexpr FinishReason kOwnEnds[] = {FinishReason::kEos,     FinishReason::kStop, FinishReason::kLength,
                                     FinishReason::kGrammar, FinishReason::kTool, FinishReason::kSafety};

// JSON has no infinity: null is that of a token that was masked.
void write_single(JsonWriter& json, float value) { std::isfinite(value) ? json.single(value) : json.null(); }

// [id, log-probability by the model, after the processors]
void write_logprob(JsonWriter& json, const TokenLogprob& token) {
  json.begin_array().integer(raw(token.token));
  write_single(json, token.raw);
  write_single(json, token.processed);
  json.end_array();
}

class OutputPrinter final : public AnswerPrinter {
 public:
  void write_events(const Generation& g, AnswerChoice& choice, size_t index, std::string& out) override;
  void write_end(const Generation&, std::string&) override {}
  void write_choice(const Generation& g, const AnswerChoice& choice, size_t index, std::string& out) override;
  std::string_view stream_type() const override { return "application/x-ndjson"; }
  std::string_view still_here() const override { return "\n"; }
};

void write_line(const Generation& g, const AnswerChoice& choice, size_t index, std::string& out) {
  JsonWriter json(out);
  json.begin_object().key("tokens").begin_array();
  for (const TokenRecord& record : choice.records) {
    json.begin_object().key("chosen");
    write_logprob(json, record.chosen);
    json.field("support", int64_t{record.support}).field("position", int64_t{record.position});
    if (!record.top.empty()) {
      json.key("top").begin_array();
      for (const TokenLogprob& token : record.top) write_logprob(json, token);
      json.end_array();
    }
    json.end_object();
  }
  json.end_array().field("text", choice.text_of(PartKind::kText));
  if (g.info().uses_mirostat) json.key("mirostat_mu").single(choice.mirostat_mu);
  json.field("cached", int64_t{g.prompt_of(index).usage.cached_tokens});
  json.field("drafted", int64_t{choice.n_drafted}).field("accepted", int64_t{choice.n_accepted});
  if (choice.finished) {
    json.field("finish", finish_reason_name(choice.reason)).field("stop_text", choice.stop_text);
    if (choice.failed()) json.field("error", ApiError::of_generation(choice.error).message);
  }
  json.end_object();
  out += '\n';
}

void OutputPrinter::write_events(const Generation& g, AnswerChoice& choice, size_t index, std::string& out) {
  const bool ends = choice.finished && !std::exchange(choice.end_written, true);
  if (choice.parts.empty() && choice.records.empty() && !ends) return;
  write_line(g, choice, index, out);
  choice.parts.clear();
  choice.records.clear();
}

void OutputPrinter::write_choice(const Generation& g, const AnswerChoice& choice, size_t index, std::string& out) {
  write_line(g, choice, index, out);
}

Error no_line(const std::string& what) { return invalid("A line of the replica's answer is not valid: " + what + "."); }

Result<int64_t> read_count(const Json& object, const char* name, int64_t most) {
  const Json* found = object.find(name);
  const int64_t* n = found != nullptr ? found->integer() : nullptr;
  if (n == nullptr || *n < 0 || *n > most) return no_line(std::string(name) + " is no number that it may be");
  return *n;
}

Result<float> read_single(const Json& value) {
  if (value.is_null()) return -std::numeric_limits<float>::infinity();
  const auto single = value.is_number() ? static_cast<float>(value.number()) : std::nanf("");
  if (!std::isfinite(single)) return no_line("a log-probability is no number");
  return single;
}

Result<TokenLogprob> read_logprob(const Json& value, int32_t vocab_size) {
  const Json::Array* parts = value.array();
  if (parts == nullptr || parts->size() != 3) return no_line("a token is no array of three");
  const int64_t* id = (*parts)[0].integer();
  if (id == nullptr || *id < 0 || *id >= vocab_size) return no_line("a token is none of the model's");
  TokenLogprob out;
  out.token = TokenId{static_cast<int32_t>(*id)};
  ASSIGN_OR_RETURN(out.raw, read_single((*parts)[1]));
  ASSIGN_OR_RETURN(out.processed, read_single((*parts)[2]));
  return out;
}

Result<TokenRecord> read_record(const Json& value, const OutputLineLimits& limits) {
  TokenRecord record;
  const Json* chosen = value.find("chosen");
  if (chosen == nullptr) return no_line("a token is missing");
  ASSIGN_OR_RETURN(record.chosen, read_logprob(*chosen, limits.vocab_size));
  ASSIGN_OR_RETURN(const int64_t support, read_count(value, "support", INT32_MAX));
  ASSIGN_OR_RETURN(const int64_t position, read_count(value, "position", INT32_MAX));
  record.support = static_cast<int32_t>(support);
  record.position = static_cast<int32_t>(position);
  const Json* top = value.find("top");
  if (top == nullptr) return record;
  if (top->array() == nullptr || std::ssize(*top->array()) > limits.n_top)
    return no_line("a token has more candidates than were asked for");
  for (const Json& token : *top->array()) {
    ASSIGN_OR_RETURN(record.top.emplace_back(), read_logprob(token, limits.vocab_size));
  }
  return record;
}

Status read_end(const Json& json, Output& out) {
  const Json* finish = json.find("finish");
  if (finish == nullptr) return {};
  const std::string* word = finish->string();
  if (word == nullptr) return no_line("finish is no text");
  for (const FinishReason reason : kOwnEnds) {
    if (*word == finish_reason_name(reason)) out.reason = reason, out.finished = true;
  }
  if (!out.finished) {
    const Json* error = json.find("error");
    const std::string* sentence = error != nullptr ? error->string() : nullptr;
    return unavailable("The replica ended the answer: " + (sentence != nullptr ? *sentence : *word));
  }
  const Json* stop = json.find("stop_text");
  if (stop == nullptr || stop->string() == nullptr) return no_line("stop_text is no text");
  out.ending = std::make_unique<Ending>();
  out.ending->stop_text = *stop->string();
  return {};
}

}  // namespace

std::unique_ptr<AnswerPrinter> make_output_printer() { return std::make_unique<OutputPrinter>(); }

Result<Output> read_output_line(std::string_view line, const OutputLineLimits& limits) {
  const JsonLimits json_limits = {.max_bytes = kMaxOutputLine, .max_depth = 8, .max_keys = 16};
  ASSIGN_OR_RETURN(const Json json, parse_json(line, "a line of the replica's answer", json_limits));
  const Json *tokens = json.find("tokens"), *text = json.find("text");
  if (tokens == nullptr || tokens->array() == nullptr || text == nullptr || text->string() == nullptr)
    return no_line("tokens or text is missing");
  if (std::ssize(*tokens->array()) > limits.n_tokens) return no_line("it has more tokens than the answer may have");
  Output out;
  for (const Json& token : *tokens->array()) {
    ASSIGN_OR_RETURN(TokenRecord record, read_record(token, limits));
    out.tokens.push_back(std::move(record));
  }
  out.text = *text->string();
  if (const Json* mu = json.find("mirostat_mu")) {
    ASSIGN_OR_RETURN(out.mirostat_mu, read_single(*mu));
  }
  ASSIGN_OR_RETURN(const int64_t cached, read_count(json, "cached", INT32_MAX));
  ASSIGN_OR_RETURN(const int64_t drafted, read_count(json, "drafted", INT32_MAX / 2));
  ASSIGN_OR_RETURN(const int64_t accepted, read_count(json, "accepted", drafted));
  out.usage.cached_tokens = static_cast<int32_t>(cached);
  out.usage.drafted_tokens = static_cast<int32_t>(drafted);
  out.usage.accepted_tokens = static_cast<int32_t>(accepted);
  TRY(read_end(json, out));
  return out;
}

}  // namespace ibid
