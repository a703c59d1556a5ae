// llama.cpp's /completion and /infill.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/json_writer.h"
#include "kernels/math.h"
#include "server/answer/generation.h"
#include "server/answer/logprobs_json.h"
#include "server/wire/api_error.h"

namespace ibid {
namespace {

class LlamaPrinter final : public AnswerPrinter {
 public:
  void write_events(const Generation& g, AnswerChoice& choice, size_t index, std::string& out) override;
  void write_end(const Generation&, std::string&) override {}
  // Of several prompts: an array.
  void write_begin(const Generation& g, std::string& out) override { out += is_list(g) ? "[" : ""; }
  void write_choice(const Generation& g, const AnswerChoice& choice, size_t index, std::string& out) override;
  void write_rest(const Generation& g, std::string& out) override { out += is_list(g) ? "]" : ""; }

 private:
  static bool is_list(const Generation& g) { return g.info().requests.size() > 1; }
  void write_piece(const Generation& g, const AnswerChoice& choice, size_t index, const std::string& text, bool ended,
                   std::string& out);

  std::vector<bool> has_new_line_;  // of each choice, in what is written
};

void write_probability(const Generation& g, JsonWriter& json, const TokenLogprob& token, bool post) {
  const std::string_view bytes = g.tokenizer().token_bytes(token.token, true);
  json.field("id", int64_t{raw(token.token)}).field("token", token_text(g.tokenizer(), token.token));
  json.key("bytes").begin_array();
  for (const char c : bytes) json.integer(static_cast<unsigned char>(c));
  json.end_array();
  if (post) {
    json.key("prob").single(std::isfinite(token.processed) ? math::exp(token.processed) : 0);
  } else {
    json.key("logprob");
    write_logprob(json, token.raw);
  }
}

void write_probabilities(const Generation& g, JsonWriter& json, const AnswerChoice& choice, bool post) {
  json.key("completion_probabilities").begin_array();
  for (const TokenRecord& record : choice.records) {
    json.begin_object();
    write_probability(g, json, record.chosen, post);
    json.key(post ? "top_probs" : "top_logprobs").begin_array();
    for (const TokenLogprob& token : record.top) {
      json.begin_object();
      write_probability(g, json, token, post);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
}

// A field of an object at a path, under that path as its name: "generation_settings/n_predict".
void keep_fields(std::string& body, const std::vector<std::string>& paths) {
  const Result<Json> whole = parse_json(body);
  if (!whole) return;
  body.clear();
  JsonWriter json(body);
  json.begin_object();
  for (const std::string& path : paths) {
    const Json* at = &*whole;
    size_t begin = 0;
    while (at != nullptr && begin <= path.size()) {
      const size_t end = std::min(path.find('/', begin), path.size());
      at = at->find(std::string_view(path).substr(begin, end - begin));
      begin = end + 1;
    }
    if (at != nullptr) json.key(path).value(*at);
  }
  json.end_object();
}

void LlamaPrinter::write_piece(const Generation& g, const AnswerChoice& choice, size_t index, const std::string& text,
                               bool ended, std::string& out) {
  const GenerationInfo& info = g.info();
  has_new_line_.resize(info.requests.size());
  if (text.find('\n') != std::string::npos) has_new_line_[index] = true;
  JsonWriter json(out);
  json.begin_object().field("index", static_cast<int64_t>(index)).field("content", text);
  json.key("tokens").begin_array();
  if (info.llama.return_tokens || info.asked.stream) {
    for (const TokenRecord& record : choice.records) json.integer(raw(record.chosen.token));
  }
  json.end_array().field("id_slot", int64_t{-1}).key("stop").boolean(ended);
  json.field("tokens_predicted", int64_t{choice.n_tokens}).field("tokens_evaluated", int64_t{info.prompt_lens[index]});
  if (info.asked.want_logprobs) write_probabilities(g, json, choice, info.llama.post_sampling);
  if (ended) {
    const bool by_text = choice.reason == FinishReason::kStop && !choice.stop_text.empty();
    json.field("model", info.model).key("generation_settings").raw(info.settings);
    json.field("prompt", info.prompt_texts.empty() ? "" : info.prompt_texts[index]);
    json.key("has_new_line")
        .boolean(has_new_line_[index])
        .key("truncated")
        .boolean(false)
        .field("stop_type", by_text                                  ? "word"
                            : choice.reason == FinishReason::kLength ? "limit"
                                                                     : "eos");
    json.field("stopping_word", by_text ? choice.stop_text : "")
        .field("tokens_cached", int64_t{g.prompt_of(index).usage.cached_tokens});
  }
  if (ended || info.llama.timings_per_token) g.write_timings(json);
  json.end_object();
}

void LlamaPrinter::write_events(const Generation& g, AnswerChoice& choice, size_t index, std::string& out) {
  const std::vector<AnswerPart> parts = std::exchange(choice.parts, {});
  for (const Generation::Progress& progress : g.take_progress(choice, index)) {
    out += "data: ";
    JsonWriter json(out);
    json.begin_object()
        .field("index", static_cast<int64_t>(index))
        .field("content", "")
        .key("tokens")
        .begin_array()
        .end_array();
    json.key("stop").boolean(false);
    progress.write(json);
    json.end_object();
    out += "\n\n";
  }
  for (const AnswerPart& part : parts) {
    out += "data: ";
    write_piece(g, choice, index, part.text, false, out);
    out += "\n\n";
    choice.records.clear();
  }
  if (!choice.finished || std::exchange(choice.end_written, true)) return;
  out += "data: ";
  if (choice.failed()) {
    if (!choice.records.empty()) {
      write_piece(g, choice, index, "", false, out);
      out += "\n\ndata: ";
    }
    out += error_json(g.error_of(choice)) + "\n\n";
    return;
  }
  write_piece(g, choice, index, "", true, out);
  out += "\n\n";
}

void LlamaPrinter::write_choice(const Generation& g, const AnswerChoice& choice, size_t index, std::string& out) {
  std::string body;
  write_piece(g, choice, index, choice.text_of(PartKind::kText), true, body);
  if (!g.info().llama.response_fields.empty()) keep_fields(body, g.info().llama.response_fields);
  out += body;
}

}  // namespace

std::unique_ptr<AnswerPrinter> make_llama_printer() { return std::make_unique<LlamaPrinter>(); }

}  // namespace ibid
