// Two servers over the fake model in this process, as replicas of each other, and bodies of each API whose answers can
// be resumed.
#pragma once

#include <atomic>

#include "conformance/engine_server.h"
#include "conformance/json_events.h"

namespace ibid {

inline ServerOptions with_moves() {
  ServerOptions options;
  options.allow_moves = true;
  return options;
}

// Counts steps that may run.
class StepGate {
 public:
  explicit StepGate(int n_steps) : n_left_(n_steps) {}
  void pass() {
    for (int n = n_left_;;) {
      if (n <= 0) {
        n_left_.wait(n);
        n = n_left_;
      } else if (n_left_.compare_exchange_weak(n, n - 1)) {
        return;
      }
    }
  }
  void let(int n_more) {
    n_left_ += n_more;
    n_left_.notify_all();
  }

 private:
  std::atomic<int> n_left_;
};

// The fake model, which stands still where its gate lets no more steps pass.
class GatedModel final : public ForwardPass {
 public:
  explicit GatedModel(StepGate& gate) : gate_(gate) {}
  const ModelFacts& facts() const override { return model_.facts(); }
  void run(const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    gate_.pass();
    model_.run(batch, kv, logits, hidden);
  }

 private:
  testing::FakeModel model_{EngineServer::kContext};
  StepGate& gate_;
};

// An engine of its own for each server; the second one's steps and blocks are others. The first one stands still after
// n_steps until open().
struct TwoReplicas {
  static constexpr int kAll = 1 << 29;
  explicit TwoReplicas(int n_steps = kAll, const std::string& keys = "")
      : gate(n_steps),
        one({.block_len = 8, .step_tokens = 64, .max_sequences = 4}, std::make_unique<GatedModel>(gate), 2000,
            with_moves(), steady_clock(), keys),
        two({.block_len = 16, .step_tokens = 20, .max_sequences = 3, .prefix_cache = false},
            std::make_unique<GatedModel>(other_gate), 2000, with_moves(), steady_clock(), keys) {}
  ~TwoReplicas() { open(); }
  void open() { gate.let(kAll); }
  StepGate gate, other_gate{kAll};
  EngineServer one, two;
};

// The tokens of LetterTokenizer that spell a text.
inline std::string ids_of(std::string_view text) {
  std::vector<TokenId> ids;
  LetterTokenizer().encode(text, {}, ids);
  return prompt_json(ids);
}

// A body with one more member.
inline std::string with(const std::string& body, const std::string& member) {
  return body.substr(0, body.size() - 1) + "," + member + "}";
}

inline std::string resume_of(std::string_view text) { return "\"resume\":{\"token_ids\":" + ids_of(text) + "}"; }

struct Api {
  const char* path;
  std::string body;  // not streamed
};

inline std::vector<Api> apis() {
  const std::string messages = R"("messages":[{"role":"user","content":"HELLO"}])";
  const std::string penalties = R"("presence_penalty":0.5,"frequency_penalty":0.7)";
  return {{"/v1/completions",
           R"({"prompt":"HELLO","max_tokens":40,"seed":5,"temperature":0.9,"ignore_eos":true,)" + penalties + "}"},
          {"/v1/chat/completions",
           "{" + messages + R"(,"max_tokens":40,"seed":6,"temperature":0.9,"min_tokens":40,)" + penalties + "}"},
          {"/v1/messages", "{" + messages + R"(,"max_tokens":40,"seed":7,"temperature":0.9,"model":"m"})"},
          {"/v1/responses", R"({"input":"HELLO","max_output_tokens":40,"seed":8,"temperature":0.9,)" + penalties + "}"},
          {"/api/chat", R"({"messages":[{"role":"user","content":"WORLD"}],"stream":false,)"
                        R"("options":{"num_predict":40,"seed":9,"temperature":0.9}})"},
          {"/api/generate", R"({"prompt":"WORLD","stream":false,"options":{"num_predict":40,"seed":10}})"},
          {"/completion", R"({"prompt":"HELLO","n_predict":40,"seed":11,"temperature":0.9,"ignore_eos":true})"}};
}

// The text in a whole answer, or in a line or event of a stream, of any of these APIs.
inline std::string text_in(const Json& json) {
  if (!list_of(json, "choices").empty()) {
    const Json& choice = list_of(json, "choices")[0];
    return text_of(choice, "text") + text_of(at(choice, "message"), "content") +
           text_of(at(choice, "delta"), "content");
  }
  std::string out;
  for (const Json& block : list_of(json, "content")) out += text_of(block, "text");
  for (const Json& item : list_of(json, "output")) {
    for (const Json& part : list_of(item, "content")) out += text_of(part, "text");
  }
  if (text_of(json, "type") == "content_block_delta") out += text_of(at(json, "delta"), "text");
  if (text_of(json, "type") == "response.output_text.delta") out += text_of(json, "delta");
  return out + text_of(at(json, "message"), "content") + text_of(json, "response") + text_of(json, "content");
}

inline std::string whole_text(int port, const Api& api, const std::string& body) {
  RawClient client(port);
  return text_in(post_json(client, api.path, body));
}

// The text of a stream's whole events.
inline std::string text_in_stream(const std::string& stream) {
  std::string out;
  size_t begin = 0;
  for (size_t end; (end = stream.find('\n', begin)) != std::string::npos; begin = end + 1) {
    std::string line = stream.substr(begin, end - begin);
    if (line.starts_with("data: ")) line.erase(0, 6);
    if (!line.starts_with("{")) continue;
    const Result<Json> json = parse_json(line);
    EXPECT_TRUE(json.ok()) << line;
    if (json && !text_of(*json, "type").starts_with("response.") && !text_of(*json, "type").ends_with("done"))
      out += text_in(*json);
    if (json && text_of(*json, "type") == "response.output_text.delta") out += text_of(*json, "delta");
  }
  return out;
}

inline std::string streamed_text(int port, const Api& api, std::string body) {
  const size_t at_stream = body.find(R"("stream":false)");
  if (at_stream != std::string::npos) body.replace(at_stream, 14, R"("stream":true)");
  if (at_stream == std::string::npos) body = with(body, R"("stream":true)");
  const HttpAnswer answer = RawClient(port).post(api.path, body);
  EXPECT_EQ(answer.status, 200) << answer.body;
  return text_in_stream(answer.body);
}

// The same body with a seed whose answer is long enough to be cut.
inline std::string with_long_answer(int port, const Api& api) {
  const size_t at = api.body.find("\"seed\":") + 7, end = api.body.find_first_of(",}", at);
  for (int seed = 1; seed < 200; ++seed) {
    std::string body = api.body;
    body.replace(at, end - at, std::to_string(seed));
    if (whole_text(port, api, body).size() >= 25) return body;
  }
  ADD_FAILURE() << "no answer is long";
  return api.body;
}

}  // namespace ibid
