// Requests of many kinds to a server whose answers are a function of the request alone, and an answer without what
// differs from one time to the next: ids, times, cached tokens.
#pragma once

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "conformance/engine_server.h"

namespace ibid {

// Of 64 tokens: the end, the characters of JSON and of markup, and markers, of which those of calls are control tokens.
class MarkupTokenizer final : public Tokenizer {
 public:
  MarkupTokenizer() {
    vocabulary_.tokens = {"<|end|>", "<tool_call>", "</tool_call>", "<think>", "</think>", "{\"", "\":", "true"};
    for (const char c : std::string_view("{}[]\":,<>/_. \n0123456789abcdefghijklmnopqrstuvwxyz=-AUT"))
      vocabulary_.tokens.push_back(std::string(1, c));
    vocabulary_.tokens.resize(testing::kFakeVocabSize, "z");
    vocabulary_.eos = testing::kFakeEnd;
    vocabulary_.end_of_generation = {testing::kFakeEnd};
  }
  void encode(std::string_view text, const EncodeOptions& options, std::vector<TokenId>& out) const override {
    for (size_t at = 0; at < text.size();) {
      bool is_plain = !options.parse_special;
      for (const TextRange& range : options.plain_ranges) is_plain = is_plain || (at >= range.begin && at < range.end);
      size_t n = 0, found = 0;
      for (size_t i = is_plain ? kControls : 0; i < vocabulary_.tokens.size(); ++i) {
        const std::string& token = vocabulary_.tokens[i];
        if (token.size() > n && text.substr(at).starts_with(token)) n = token.size(), found = i;
      }
      if (n > 0) out.push_back(TokenId{static_cast<int32_t>(found)});
      at += std::max<size_t>(n, 1);
    }
  }
  std::string_view token_bytes(TokenId id, bool special) const override {
    const auto i = static_cast<size_t>(raw(id));
    return i < vocabulary_.tokens.size() && (special || i >= kControls) ? std::string_view(vocabulary_.tokens[i]) : "";
  }
  bool strips_leading_space() const override { return false; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  static constexpr size_t kControls = 3;
  Vocabulary vocabulary_;
};

// The template knows reasoning and tools, and opens the reasoning where it is asked to.
inline constexpr const char* kReasoningTemplate =
    "{# <think> </think> <tool_call> #}{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}"
    "{% if tools %}{{ tools|length }}{% endif %}{% if enable_thinking %}<think>{% endif %}";

inline std::unique_ptr<ForwardPass> crosstalk_model() {
  return std::make_unique<testing::FakeModel>(EngineServer::kContext, 0, 8);
}

inline std::unique_ptr<EngineServer> crosstalk_server(const EngineOptions& options = {}, int n_blocks = 200,
                                                      const std::string& keys = "",
                                                      std::shared_ptr<Recorder> recorder = nullptr) {
  ServerOptions server;
  server.api.max_drafts = options.max_drafts;
  return std::make_unique<EngineServer>(options, crosstalk_model(), n_blocks, server, steady_clock(), keys,
                                        kReasoningTemplate, std::make_shared<const MarkupTokenizer>(),
                                        std::move(recorder));
}

struct AskedOfServer {
  std::string path, body;
};

// Each kind of request that constrains its answer, and those that do not.
inline std::vector<AskedOfServer> kinds_of_requests() {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false})";
  const std::string gbnf = R"("grammar":"root ::= \"<\" [0-9]+ \".\"")";
  const std::string lazy = R"(,"grammar_lazy":true,"grammar_triggers":)";
  const auto format = [&](const char* strict) {
    return R"("response_format":{"type":"json_schema","json_schema":{"name":"n")" + std::string(strict) +
           R"(,"schema":)" + schema + "}}";
  };
  const std::vector<std::string> grammars = {"",
                                             gbnf,
                                             gbnf + lazy + R"([{"type":1,"value":"<"}])",
                                             gbnf + lazy + R"([{"type":2,"value":"<"}])",
                                             gbnf + lazy + R"([{"type":1,"value":"<"},{"type":1,"value":"a"}])",
                                             gbnf + R"(,"close_in_time":true)",
                                             R"("response_format":{"type":"json_object"})",
                                             format(""),
                                             format(R"(,"strict":true)"),
                                             R"("structured_outputs":{"regex":"<[0-9]+\\."})",
                                             R"("structured_outputs":{"choice":["<1.","<2."]})"};
  const auto tools = [&](const char* strict, const char* choice) {
    return R"("tools":[{"type":"function","function":{"name":"f","parameters":)" + schema + strict +
           R"(}},{"type":"function","function":{"name":"g"}}],"tool_choice":)" + choice;
  };
  const std::vector<std::string> with_tools = {
      "",
      tools("", "\"auto\""),
      tools(R"(,"strict":true)", "\"auto\""),
      tools("", "\"required\""),
      tools(R"(,"strict":true)", "\"required\""),
      tools("", "\"none\""),
      tools("", R"({"type":"function","function":{"name":"f"}})"),
  };
  const std::string end = R"("temperature":0.8,"seed":7,"max_tokens":14)";
  const auto joined = [&](const std::vector<std::string>& parts) {
    std::string body = "{" + end;
    for (const std::string& part : parts) body += part.empty() ? "" : "," + part;
    return body + "}";
  };
  const std::string messages = R"("messages":[{"role":"user","content":"hi"}])";
  std::vector<AskedOfServer> out;
  for (const std::string& grammar : grammars) {
    for (const std::string& tool : with_tools) {
      for (const char* reasoning : {"", R"("reasoning_format":"none")"}) {
        for (const char* open : {"", R"("chat_template_kwargs":{"enable_thinking":true})"})
          out.push_back({"/v1/chat/completions", joined({messages, grammar, tool, reasoning, open})});
      }
    }
    out.push_back({"/v1/completions", joined({R"("prompt":"userhi")", grammar})});
    const std::string llama = grammar.starts_with(R"("response_format")") ? "\"json_schema\":" + schema : grammar;
    if (!llama.starts_with(R"("structured)")) out.push_back({"/completion", joined({R"("prompt":"userhi")", llama})});
  }
  const std::string responses = R"("input":"hi","max_output_tokens":14,"temperature":0.8,"seed":7)";
  for (const std::string& text : {std::string(), R"(,"text":{"format":{"type":"json_object"}})" + std::string(),
                                  R"(,"text":{"format":{"type":"json_schema","name":"n","schema":)" + schema + "}}"})
    out.push_back({"/v1/responses", "{" + responses + text + "}"});
  const std::string ollama =
      messages + R"(,"model":"letters","stream":false,"options":{"seed":7,"temperature":0.8,"num_predict":14})";
  for (const std::string& more : {std::string(), std::string(R"(,"format":"json")"), R"(,"format":)" + schema,
                                  std::string(R"(,"think":true)"), R"(,"think":true,"format":)" + schema})
    out.push_back({"/api/chat", "{" + ollama + more + "}"});
  const std::string anthropic = messages + R"(,"model":"letters","max_tokens":14,"temperature":0.8,"seed":7)";
  const std::string tool = R"(,"tools":[{"name":"f","input_schema":)" + schema + "}]";
  for (const std::string& more : {std::string(), tool, tool + R"(,"tool_choice":{"type":"any"})"})
    out.push_back({"/v1/messages", "{" + anthropic + more + "}"});
  return out;
}

// What else is served: searches, vectors, log-probabilities, verifiers, predictions, budgets, ends of all kinds.
inline std::vector<AskedOfServer> other_requests() {
  std::vector<AskedOfServer> out;
  const std::string text = R"("prompt":"abc abc abc abc","temperature":0.8,"seed":3,"max_tokens":20)";
  for (const char* more :
       {R"("n":3)", R"("n":2,"best_of":4)", R"("stop":["a","}"])", R"("logprobs":5)", R"("echo":true,"logprobs":2)",
        R"("prompt_logprobs":2)", R"("logit_bias":{"0":100})", R"("ignore_eos":true)", R"("min_tokens":9)",
        R"("mirostat":2)", R"("dry_multiplier":0.8)", R"("repetition_penalty":1.3,"top_k":5)",
        R"("speculation":{"verifier":"rejection"})", R"("speculation":{"verifier":"typical"})",
        R"("speculation":{"mode":"off"})", R"("truncate_prompt_tokens":4)", R"("cache_salt":"s")", R"("suffix":"abc")",
        R"("allowed_token_ids":[9,10,11])", R"("bad_words":["a"])", R"("stop_token_ids":[12,13,14])",
        R"("grammar":"root ::= [a-c ]{1,12}")", R"("grammar":"root ::= [a-c ]{1,12}","repetition_penalty":1.3)",
        // Errors: nothing is left to draw from, at once or after some tokens.
        R"("grammar":"root ::= \"a\" \"b\"","allowed_token_ids":[9,10])",
        R"("grammar":"root ::= \"abc \" [0-9]","allowed_token_ids":[18,31,32,33])",
        R"("grammar":"root ::= \"abc \" \"abc \" \"1\"","bad_words":["1"],"speculation":{"verifier":"rejection"})"})
    out.push_back({"/v1/completions", "{" + text + "," + more + "}"});
  out.push_back({"/v1/completions", R"({"prompt":["abc","abd","abc"],"max_tokens":6,"seed":1})"});
  const std::string search = R"("prompt":"abc abc","max_tokens":9,"seed":3)";
  for (const char* more : {R"("num_beams":3,"n":2)", R"("num_beams":4,"num_beam_groups":2,"diversity_penalty":0.5)",
                           R"("use_beam_search":true,"n":2)", R"("num_beams":3,"grammar":"root ::= [a-c]{2,6}")",
                           R"("num_beams":3,"stop_token_ids":[12,13,14])", R"("penalty_alpha":0.6,"top_k":4)",
                           R"("penalty_alpha":0.6,"top_k":3,"grammar":"root ::= [a-c]{2,6}")"})
    out.push_back({"/v1/completions", "{" + search + "," + more + "}"});
  const std::string chat =
      R"("messages":[{"role":"user","content":"abc abc"}],"temperature":0,"max_tokens":24,"seed":3)";
  for (const char* more :
       {R"("chat_template_kwargs":{"enable_thinking":true},"thinking_token_budget":3)",
        R"("prediction":{"type":"content","content":"<12345678."},"grammar":"root ::= \"<\" [0-9]+ \".\"")",
        R"("prediction":{"type":"content","content":"abcdefgh"},"grammar":"root ::= [a-z]{6,20}")",
        R"("logprobs":true,"top_logprobs":3,"response_format":{"type":"json_object"})"})
    out.push_back({"/v1/chat/completions", "{" + chat + "," + more + "}"});
  for (const char* pooling : {"mean", "last", "first"})
    out.push_back({"/v1/embeddings", R"({"input":["hi","hi there"],"pooling":")" + std::string(pooling) + "\"}"});
  out.push_back({"/pooling", R"({"input":"hi there","task":"token_embed"})"});
  out.push_back({"/api/embed", R"({"model":"letters","input":"hi"})"});
  return out;
}

// Without what may differ from one time to the next.
inline Json without_what_differs(const Json& value) {
  static const std::set<std::string, std::less<>> kDiffers = {"id",
                                                              "created",
                                                              "created_at",
                                                              "completed_at",
                                                              "timings",
                                                              "usage",
                                                              "call_id",
                                                              "item_id",
                                                              "total_duration",
                                                              "prompt_eval_duration",
                                                              "eval_duration",
                                                              "load_duration",
                                                              "tokens_cached",
                                                              "prompt_eval_count",
                                                              "tokens_evaluated"};
  if (value.array() != nullptr) {
    Json::Array out;
    for (const Json& item : *value.array()) out.push_back(without_what_differs(item));
    return Json(std::move(out));
  }
  if (value.object() == nullptr) return value;
  Json::Object out;
  for (const auto& [name, member] : *value.object())
    if (!kDiffers.contains(name)) out.emplace_back(name, without_what_differs(member));
  return Json(std::move(out));
}

inline std::string text_message(RawClient& client, const AskedOfServer& asked, const std::string& headers = "") {
  const HttpAnswer a = client.post(asked.path, asked.body, headers, 60);
  const Result<Json> json = parse_json(a.body);
  return std::to_string(a.status) + " " + (json ? without_what_differs(*json).text() : a.body);
}

}  // namespace ibid
