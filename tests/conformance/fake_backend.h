// FakeBackend: a scripted engine on a thread of its own, with a vocabulary of the 256 bytes. Its answer is a function
// of prompt, seed and choice alone, so that a test knows every answer; its speed, queue and faults are the test's.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

#include "server/request/backend.h"
#include "text/output/stop_matcher.h"

namespace ibid {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kEnd{256};
  ByteTokenizer() {
    for (int b = 0; b < 256; ++b) bytes_.push_back(std::string(1, static_cast<char>(b)));
    vocabulary_.tokens = bytes_;
    vocabulary_.tokens.emplace_back("<|end|>");
  }
  // Texts above 100,000 bytes are encoded only once `gate` is true; none: at once.
  explicit ByteTokenizer(const std::atomic<bool>* gate, bool wraps = false, bool fills_in = false) : ByteTokenizer() {
    gate_ = gate;
    wraps_ = wraps;
    if (fills_in) vocabulary_.tokens.insert(vocabulary_.tokens.end(), kFim.begin(), kFim.end());
  }
  void encode(std::string_view text, const EncodeOptions& options, std::vector<TokenId>& out) const override {
    if (gate_ != nullptr && text.size() > 100'000) ++n_long_, gate_->wait(false);
    const bool wraps = wraps_ && options.add_special;
    if (wraps) out.push_back(kEnd);
    for (size_t i = 0; i < text.size(); ++i) {
      bool plain = !options.parse_special;
      for (const TextRange& range : options.plain_ranges) plain = plain || (i >= range.begin && i < range.end);
      if (!plain && text.substr(i).starts_with("<|end|>")) {
        out.push_back(kEnd);
        i += 6;
        continue;
      }
      out.push_back(TokenId{static_cast<unsigned char>(text[i])});
    }
    if (wraps) out.push_back(kEnd);
  }
  std::string_view token_bytes(TokenId id, bool special) const override {
    if (id == kEnd) return special ? "<|end|>" : "";
    if (raw(id) > raw(kEnd) && raw(id) < vocab_size())
      return special ? std::string_view(vocabulary_.tokens[static_cast<size_t>(raw(id))]) : "";
    return raw(id) >= 0 && raw(id) < 256 ? std::string_view(bytes_[static_cast<size_t>(raw(id))]) : "";
  }
  int n_long() const { return n_long_; }  // encodings of long texts that have begun
  bool strips_leading_space() const override { return false; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  static constexpr std::array<const char*, 3> kFim = {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"};
  std::vector<std::string> bytes_;
  Vocabulary vocabulary_;
  const std::atomic<bool>* gate_ = nullptr;
  mutable std::atomic<int> n_long_ = 0;
  bool wraps_ = false;  // with <|end|> at both ends, where special tokens are asked for
};

class FakeBackend final : public Backend {
 public:
  struct Options {
    double step_seconds = 0.0005;
    int max_running = 64;
    int max_waiting = 256;
    int context_len = 2048;
    int trained_context_len = 0;                        // the model's own
    double token_seconds = 0;                           // seconds per token, as reported by outputs; 0: by the clock
    bool fills_in = false;                              // its vocabulary has tokens for that
    const std::atomic<bool>* long_text_gate = nullptr;  // see ByteTokenizer
    int answer_len = 20;                                // default of max_tokens
    std::string name = "fake-1";
    bool is_encoder = false;
    int n_labels = 0;
  };
  explicit FakeBackend(Options options) : options_(options) {
    info_ = {options.name, "fake", "0123456789abcdef0123", options.context_len, 1700000000};
    info_.width = 4;
    info_.trained_context_len = options.trained_context_len;
    info_.is_encoder = options.is_encoder;
    info_.n_labels = options.n_labels;
    if (options.n_labels > 0) info_.pooling = Pooling::kRank;
  }
  FakeBackend() : FakeBackend(Options()) {}
  ~FakeBackend() override { stop(); }

  // What choice `choice` of a prompt answers: letters and blanks.
  static std::string answer(std::string_view prompt, uint64_t seed, int n_tokens) {
    std::string text;
    uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
    for (const char c : prompt) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
    for (int i = 0; i < n_tokens; ++i) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      text += "abcdefghijklmnopqrstuvwxyz      "[state >> 59];
    }
    return text;
  }
  // The vector of a text: its length, its first token, how it is pooled, and 1. The score of a pair: by the first
  // letter of its second text, of which "m" is neither good nor bad.
  static std::vector<float> vector(const Request& r) {
    if (r.pooling == Pooling::kRank)
      return {static_cast<float>(raw(r.prompt[static_cast<size_t>(r.second_text)]) - 'm') / 4};
    if (r.pooling == Pooling::kEach) {  // of each token its place, itself, 0 and 1
      std::vector<float> rows;
      for (size_t i = 0; i < r.prompt.size(); ++i)
        rows.insert(rows.end(), {static_cast<float>(i), static_cast<float>(raw(r.prompt[i])), 0, 1});
      return rows;
    }
    return {static_cast<float>(r.prompt.size()), static_cast<float>(raw(r.prompt[0])), static_cast<float>(r.pooling),
            1};
  }
  static std::string chat_prompt(std::string_view user) { return "<user>" + std::string(user) + "<|end|><assistant>"; }

  void start(OnOutput on_output) override {
    on_output_ = std::move(on_output);
    thread_ = std::thread([this] { loop(); });
  }
  void stop() override {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  RequestId next_id() override { return RequestId{++last_id_}; }
  bool is_full() const override {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(waiting_.size()) >= options_.max_waiting;
  }
  Status submit(Request request) override {
    const std::lock_guard lock(mutex_);
    if (static_cast<int>(waiting_.size()) >= options_.max_waiting) return exhausted("The queue is full; try again.");
    ++n_submitted;
    auto shared = std::make_shared<const Request>(std::move(request));
    for (int choice = 0; choice < shared->n; ++choice) waiting_.push_back(make_sequence(shared, choice));
    return {};
  }
  void cancel(RequestId id) override {
    const std::lock_guard lock(mutex_);
    cancels_.push_back(id);
  }
  EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    EngineStats stats = stats_;
    stats.n_running = static_cast<int>(running_.size());
    stats.n_waiting = static_cast<int>(waiting_.size());
    stats.blocks_total = 1000;
    stats.blocks_in_use = std::min(1000, stats.n_running * 3);
    stats.blocks_cached = 100;
    stats.blocks_free = 1000 - stats.blocks_in_use - stats.blocks_cached;
    return stats;
  }
  double heartbeat() const override { return heartbeat_; }
  const Clock& clock() const override { return steady_clock(); }
  const ModelInfo& model() const override { return info_; }
  const Tokenizer& tokenizer() const override { return tokenizer_; }
  std::string_view chat_template() const override { return "{{ messages }}"; }
  const std::shared_ptr<const AnswerFormat>& answer_format() const override { return format_; }
  Result<RenderedPrompt> render_chat(const ChatPrompt& chat) const override {
    RenderedPrompt prompt;
    for (const Json& message : *chat.messages.array()) {
      const std::string& role = *message.find("role")->string();
      prompt.text += "<" + (role == "developer" ? "system" : role) + ">";  // as for most templates
      const std::string* content = message.find("content")->string();
      const size_t begin = prompt.text.size();
      if (content != nullptr) prompt.text += *content;
      prompt.plain_ranges.push_back({begin, prompt.text.size()});
      prompt.text += "<|end|>";
    }
    if (chat.add_generation_prompt) prompt.text += "<assistant>";
    if (prompt.text.find("hold me") != std::string::npos) {  // on the thread that handles it
      const int64_t place = n_held++;
      while (place >= n_let_go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return prompt;
  }

  // A last message of these words, a user's or a tool's, is answered so, and the answer ends by itself.
  void say(const std::string& asked, const std::string& said) {
    const std::lock_guard lock(mutex_);
    script_[asked] = said;
  }
  // A conversation in which these words stand is answered turn by turn: after the last place of theirs, after k
  // answers of the assistant's, by turn k.
  void play(const std::string& words, std::vector<std::string> turns) {
    const std::lock_guard lock(mutex_);
    plays_.emplace_back(words, std::move(turns));
  }
  // Faults and facts for tests.
  std::atomic<bool> frozen = false;                       // the engine's thread stands still
  mutable std::atomic<int64_t> n_held = 0, n_let_go = 0;  // conversations with "hold me" in them
  std::atomic<int> n_submitted = 0, n_cancelled = 0, n_finished = 0;
  std::string error_for = "\x01";  // prompts that have this end with an error
  int n_long_texts() const { return tokenizer_.n_long(); }
  int n_live() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(running_.size() + waiting_.size());
  }

 private:
  struct Sequence {
    std::shared_ptr<const Request> request;
    int choice = 0;
    std::string answer;
    size_t n_done = 0;
    int n_computed = 0;
    bool ends_itself = false;
    std::optional<AnswerStops> matcher;
    Timing timing;
  };

  Sequence make_sequence(const std::shared_ptr<const Request>& request, int choice) {
    Sequence sequence;
    sequence.request = request;
    sequence.choice = choice;
    std::string prompt;
    for (const TokenId id : request->prompt) prompt += tokenizer_.token_bytes(id, true);
    const int room = options_.context_len - static_cast<int>(request->prompt.size());
    const int n = std::min(room, request->max_tokens >= 0 ? request->max_tokens : options_.answer_len);
    sequence.answer = answer(prompt, request->sampling.seed + static_cast<uint64_t>(choice), n);
    if (prompt.find(error_for) != std::string::npos) sequence.answer = "\x01";
    for (const auto& [asked, said] : script_) {
      const std::string from_tool = "<tool>" + chat_prompt(asked).substr(std::string_view("<user>").size());
      if (!prompt.ends_with(chat_prompt(asked)) && !prompt.ends_with(from_tool) && prompt != asked) continue;
      sequence.answer = said.substr(0, static_cast<size_t>(request->max_tokens >= 0 ? request->max_tokens : room));
      sequence.ends_itself = sequence.answer.size() == said.size();
    }
    for (const auto& [words, turns] : plays_) {
      const size_t at = prompt.rfind(words);
      if (at == std::string::npos) continue;
      size_t n_answers = 0;
      for (size_t i = at; (i = prompt.find("<assistant>", i)) != std::string::npos; ++i) ++n_answers;
      if (n_answers == 0 || n_answers > turns.size()) continue;
      sequence.answer = turns[n_answers - 1];
      sequence.ends_itself = true;
    }
    if (request->stops) sequence.matcher.emplace(request->stops, request->markup);
    // An answer that is resumed goes on after its first tokens.
    sequence.n_done = request->resume.tokens.size();
    std::string sent;
    for (size_t i = 0; i < sequence.n_done && sequence.matcher; ++i)
      sequence.matcher->push(sequence.answer.substr(i, 1), sent);
    sequence.timing.arrived = steady_clock().now();
    return sequence;
  }

  TokenRecord record(TokenId id, size_t position, int n_top, size_t i) const {
    TokenRecord r;
    r.chosen = {id, -0.25f * static_cast<float>(1 + i % 5), -0.125f};
    constexpr float kMasked = -std::numeric_limits<float>::infinity();  // "b" is
    for (int k = 0; k < n_top; ++k)
      r.top.push_back({TokenId{97 + k}, -0.5f * static_cast<float>(k + 1), k == 1 ? kMasked : -0.5f});
    r.support = 32;
    r.position = static_cast<int>(position);
    return r;
  }

  // One token; true when the sequence has ended.
  bool advance(Sequence& s, std::vector<Output>& out) {
    const double told = s.timing.arrived + options_.token_seconds * static_cast<double>(s.n_done + 1);
    const double now = options_.token_seconds > 0 ? told : steady_clock().now();
    if (s.timing.admitted == 0) s.timing.admitted = now;
    Output o;
    o.request = s.request->id;
    o.choice = s.choice;
    const int n_prompt = static_cast<int>(s.request->prompt.size());
    if (s.request->reports_progress && s.choice == 0 && s.n_computed < n_prompt) {  // in two steps
      s.n_computed = std::min(n_prompt, s.n_computed + (n_prompt + 1) / 2);
      o.n_computed = s.n_computed;
      o.usage.prompt_tokens = n_prompt;
      if (s.n_computed < n_prompt) return out.push_back(std::move(o)), false;
    }
    const int n_top = std::max(0, s.request->sampling.logprobs);
    if (s.n_done == 0 && s.choice == 0 && s.request->prompt_logprobs >= 0) {
      for (size_t i = 1; i < s.request->prompt.size(); ++i)
        o.prompt.push_back(record(s.request->prompt[i], i, s.request->prompt_logprobs, i));
    }
    if (s.request->pooling != Pooling::kNone && s.answer != "\x01") {
      o.ending = std::make_unique<Ending>(Ending{.embedding = vector(*s.request)});
      o.finished = true;
      o.reason = FinishReason::kStop;
    } else if (s.answer == "\x01") {
      o.fail(invalid("No token is left to draw from."));
    } else if (s.n_done < s.answer.size()) {
      const std::string piece(1, s.answer[s.n_done]);
      o.tokens.push_back(
          record(TokenId{static_cast<unsigned char>(piece[0])}, s.request->prompt.size() + s.n_done, n_top, s.n_done));
      ++s.n_done;
      ++stats_.generated_tokens;
      ++stats_.step_decode_tokens;
      if (s.timing.first_token == 0) s.timing.first_token = now;
      s.timing.last_token = now;
      std::optional<int> stop;
      if (s.matcher) {
        stop = s.matcher->push(piece, o.text);
      } else {
        o.text = piece;
      }
      if (stop) {
        o.finished = true;
        o.reason = FinishReason::kStop;
        o.ending =
            std::make_unique<Ending>(Ending{.stop_text = s.request->stops->strings()[static_cast<size_t>(*stop)]});
      }
    }
    if (!o.finished && s.n_done == s.answer.size() && s.request->pooling == Pooling::kNone) {
      const std::optional<int> stop = s.matcher ? s.matcher->finish(o.text) : std::nullopt;
      o.finished = true;
      o.reason = s.request->max_tokens >= 0 && !s.ends_itself ? FinishReason::kLength : FinishReason::kEos;
      if (stop) {
        o.reason = FinishReason::kStop;
        o.ending =
            std::make_unique<Ending>(Ending{.stop_text = s.request->stops->strings()[static_cast<size_t>(*stop)]});
      }
    }
    o.usage = {static_cast<int>(s.request->prompt.size()), 0, static_cast<int>(s.n_done)};
    o.timing = s.timing;
    if (o.finished) ++n_finished;
    const bool finished = o.finished;
    out.push_back(std::move(o));
    return finished;
  }

  void loop() {
    while (!stopping_) {
      if (!frozen) {
        heartbeat_ = steady_clock().now();
        std::vector<Output> out;
        {
          const std::lock_guard lock(mutex_);
          for (const RequestId id : std::exchange(cancels_, {})) {
            const auto is_it = [&](const Sequence& s) {
              if (s.request->id != id) return false;
              ++n_cancelled;
              Output o;
              o.request = id;
              o.choice = s.choice;
              o.finished = true;
              o.reason = FinishReason::kCancelled;
              o.timing = s.timing;
              out.push_back(std::move(o));
              return true;
            };
            std::erase_if(running_, is_it);
            std::erase_if(waiting_, is_it);
          }
          while (!waiting_.empty() && static_cast<int>(running_.size()) < options_.max_running) {
            running_.push_back(std::move(waiting_.front()));
            waiting_.erase(waiting_.begin());
          }
          stats_.step_decode_tokens = 0;
          if (!running_.empty()) ++stats_.n_steps;
          std::erase_if(running_, [&](Sequence& s) { return advance(s, out); });
        }
        on_output_(out, stats());
      }
      std::this_thread::sleep_for(std::chrono::duration<double>(options_.step_seconds));
    }
  }

  Options options_;
  // Answers are as Hermes and Qwen 3 write them.
  std::shared_ptr<const AnswerFormat> format_ =
      std::make_shared<AnswerFormat>(AnswerFormat::of_template("<tool_call> <think>"));
  std::map<std::string, std::string> script_;
  std::vector<std::pair<std::string, std::vector<std::string>>> plays_;
  ModelInfo info_;
  ByteTokenizer tokenizer_{options_.long_text_gate, options_.n_labels > 0, options_.fills_in};
  OnOutput on_output_;
  std::thread thread_;
  std::atomic<bool> stopping_ = false;
  std::atomic<uint64_t> last_id_ = 0;
  std::atomic<double> heartbeat_ = 0;
  mutable std::mutex mutex_;
  std::vector<Sequence> waiting_, running_;
  std::vector<RequestId> cancels_;
  EngineStats stats_;
};

}  // namespace ibid
