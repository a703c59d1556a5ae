// A server in this process over the real engine, with a model whose answers are known without any engine.
#pragma once

#include "allocation_hook.h"
#include "conformance/raw_client.h"
#include "conformance/server_fixture.h"
#include "engine/engine.h"
#include "fake_model.h"
#include "server/request/engine_backend.h"

namespace ibid {

// 64 tokens: the end, and 63 letters.
class LetterTokenizer final : public Tokenizer {
 public:
  LetterTokenizer() {
    vocabulary_.tokens.emplace_back("<|end|>");
    for (int i = 1; i < testing::kFakeVocabSize; ++i)
      vocabulary_.tokens.push_back(std::string(1, static_cast<char>('@' + i - 1)));
    vocabulary_.eos = testing::kFakeEnd;
    vocabulary_.end_of_generation = {testing::kFakeEnd};
  }
  void encode(std::string_view text, const EncodeOptions&, std::vector<TokenId>& out) const override {
    for (const char c : text) {
      if (c >= '@' && c < '@' + 63) out.push_back(TokenId{c - '@' + 1});
    }
  }
  std::string_view token_bytes(TokenId id, bool special) const override {
    const bool known = raw(id) > 0 && raw(id) < testing::kFakeVocabSize;
    return known || (special && raw(id) == 0) ? std::string_view(vocabulary_.tokens[static_cast<size_t>(raw(id))]) : "";
  }
  bool strips_leading_space() const override { return false; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
};

// The fake model at a pace that sockets can follow.
class SlowModel final : public ForwardPass {
 public:
  SlowModel(int32_t context_len, double seconds) : model_(context_len), seconds_(seconds) {}
  const ModelFacts& facts() const override { return model_.facts(); }
  void run(const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    const testing::Spared spared;  // it checks with sets of its own
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_));
    model_.run(batch, kv, logits, hidden);
  }

 private:
  testing::FakeModel model_;
  double seconds_;
};

class EngineServer {
 public:
  static constexpr const char* kTemplate = "{% for m in messages %}{{ m.role|upper }}{{ m.content }}{% endfor %}";

  explicit EngineServer(const EngineOptions& options, double step_seconds, int n_blocks = 2000,
                        const std::string& keys = "", std::string_view chat_template = kTemplate)
      : EngineServer(options, std::make_unique<SlowModel>(kContext, step_seconds), n_blocks, {}, steady_clock(), keys,
                     chat_template) {}
  // `model` must have the fake's vocabulary; `clock` is the engine's, and outlives the server; with a recorder its own
  // is.
  EngineServer(EngineOptions options, std::unique_ptr<ForwardPass> model, int n_blocks = 2000,
               ServerOptions server = {}, const Clock& clock = steady_clock(), const std::string& keys = "",
               std::string_view chat_template = kTemplate,
               std::shared_ptr<const Tokenizer> tokenizer = std::make_shared<const LetterTokenizer>(),
               std::shared_ptr<Recorder> recorder = nullptr) {
    options.kv_dtype = DType::kF32;
    options.kv_bytes = n_blocks * KvStore::block_bytes(model->facts(), options.kv_dtype, options.block_len);
    const int32_t width = model->facts().width;
    std::unique_ptr<Engine> engine =
        Engine::create(std::move(model), tokenizer, stream_, options, recorder ? recorder->clock() : clock).value();
    if (recorder) recorder->begin(*engine, "letters", 1);
    EngineParts parts{ModelInfo(), tokenizer, ChatTemplate::for_model(chat_template), nullptr, nullptr};
    parts.info.width = width;
    parts.recorder = std::move(recorder);
    parts.info.name = "letters";
    parts.info.digest = "00ff";
    parts.info.context_len = kContext;
    parts.engine = std::move(engine);
    backend_ = make_engine_backend(std::move(parts));
    server.port = 0;
    log_ = *RequestLog::open("/dev/null", false, true);
    front_ = std::make_unique<FrontDoor>(server, keys.empty() ? ApiKeys() : *ApiKeys::parse(keys), *log_);
    http_ = std::make_unique<HttpServer>(server, *front_, *log_);
    EXPECT_TRUE(http_->listen().ok());
    http_->start();
    front_->set_backend(backend_.get());
  }
  ~EngineServer() {
    http_->stop();
    backend_->stop();
  }
  int port() const { return http_->port(); }
  EngineStats stats() const { return backend_->stats(); }
  const FrontDoor& front() const { return *front_; }
  FrontDoor& front() { return *front_; }
  RequestLog& log() { return *log_; }
  ThreadTeam& team() { return team_; }

  static constexpr int32_t kContext = 512;

 private:
  ThreadTeam team_{1};
  Stream stream_{team_};
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<RequestLog> log_;
  std::unique_ptr<FrontDoor> front_;
  std::unique_ptr<HttpServer> http_;
};

inline std::string prompt_json(const std::vector<TokenId>& prompt) {
  std::string out;
  JsonWriter json(out);
  json.begin_array();
  for (const TokenId id : prompt) json.integer(raw(id));
  json.end_array();
  return out;
}

inline std::vector<int64_t> token_ids(const std::string& events) {
  std::vector<int64_t> ids;
  size_t at = 0;
  while ((at = events.find("\"token_ids\":[", at)) != std::string::npos) {
    at += 13;
    while (events[at] != ']') {
      ids.push_back(std::strtoll(events.c_str() + at, nullptr, 10));
      at = events.find_first_of(",]", at);
      if (events[at] == ',') ++at;
    }
  }
  return ids;
}

}  // namespace ibid
