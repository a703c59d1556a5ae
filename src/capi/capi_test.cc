// The C library over a tiny model: answers, streams, callbacks, errors, threads, two engines.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "ibid.h"
#include "tiny_files.h"

namespace ibid {
namespace {

// What a function returned through its last parameters, freed.
struct Told {
  ibid_code code = IBID_OK;
  std::string text, message, field, json;
};

Told told(ibid_code code, char* text, size_t n_bytes, ibid_error* error) {
  Told out{.code = code};
  if (text != nullptr) {
    out.text.assign(text, n_bytes);
    EXPECT_EQ(text[n_bytes], '\0');
  }
  if (error != nullptr) {
    EXPECT_EQ(ibid_error_code(error), code);
    out.message = ibid_error_message(error);
    out.field = ibid_error_field(error);
    out.json = ibid_error_json(error);
  }
  ibid_free(text);
  ibid_error_free(error);
  return out;
}

Told open_told(const std::string& options, ibid_engine** engine) {
  ibid_error* error = nullptr;
  const ibid_code code = ibid_open(options.c_str(), engine, &error);
  return told(code, nullptr, 0, error);
}

class Engine {
 public:
  explicit Engine(const std::string& model, const std::string& more = "") {
    const Told opened =
        open_told(R"({"model":")" + model + R"(","threads":1,"kv-memory":"16M")" + more + "}", &engine_);
    EXPECT_EQ(opened.code, IBID_OK) << opened.message;
  }
  ~Engine() { close(); }
  void close() { EXPECT_EQ(ibid_close(std::exchange(engine_, nullptr)), IBID_OK); }
  ibid_engine* get() const { return engine_; }
  Told call(const char* path, const std::string& body) const {
    char* text = nullptr;
    size_t n = 0;
    ibid_error* error = nullptr;
    const ibid_code code = ibid_call(engine_, path, body.data(), body.size(), &text, &n, &error);
    return told(code, text, n, error);
  }
  Told get(const char* path) const {
    char* text = nullptr;
    size_t n = 0;
    ibid_error* error = nullptr;
    const ibid_code code = ibid_call(engine_, path, nullptr, 0, &text, &n, &error);
    return told(code, text, n, error);
  }
  ibid_request* submit(const std::string& body, ibid_callback callback = nullptr, void* user = nullptr) const {
    ibid_request* request = nullptr;
    ibid_error* error = nullptr;
    const ibid_code code =
        ibid_submit(engine_, "/v1/completions", body.data(), body.size(), callback, user, &request, &error);
    EXPECT_EQ(code, IBID_OK) << ibid_error_message(error);
    ibid_error_free(error);
    return request;
  }

 private:
  ibid_engine* engine_ = nullptr;
};

Told next(ibid_request* request, int64_t timeout_ms = -1) {
  char* text = nullptr;
  size_t n = 0;
  ibid_error* error = nullptr;
  const ibid_code code = ibid_next(request, timeout_ms, &text, &n, &error);
  return told(code, text, n, error);
}

const Json& first_choice(const Json& answer) { return (*answer.find("choices")->array())[0]; }
std::string text_of(const std::string& answer) {
  const Result<Json> json = parse_json(answer);
  if (!json || json->find("choices") == nullptr) return "no answer: " + answer;
  return *first_choice(*json).find("text")->string();
}

std::string body(const std::string& prompt, int max_tokens = 12, const std::string& more = "") {
  return R"({"prompt":")" + prompt + R"(","seed":5,"ignore_eos":true,"max_tokens":)" + std::to_string(max_tokens) +
         more + "}";
}

class Capi : public ::testing::Test {
 protected:
  std::string model(const char* name = "tiny.gguf", uint64_t seed = 1, int64_t context_len = 256) const {
    std::ofstream(folder_.path(name), std::ios::binary)
        << testing::tiny_gguf({.seed = seed, .vocab_size = 260, .context_len = context_len, .tokenizer = true});
    return folder_.path(name);
  }
  TempFolder folder_;
};

TEST_F(Capi, AnswersTwiceTheSameAndAsAStream) {
  const Engine engine(model());
  const Told once = engine.call("/v1/completions", body("hello"));
  ASSERT_EQ(once.code, IBID_OK) << once.message;
  const std::string text = text_of(once.text);
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(text_of(engine.call("/v1/completions", body("hello")).text), text);
  EXPECT_NE(text_of(engine.call("/v1/completions", body("other")).text), text);

  ibid_request* request = engine.submit(body("hello", 12, R"(,"stream":true)"));
  std::string streamed, reason;
  int n_events = 0;
  Told event = next(request);
  for (; event.code == IBID_OK; event = next(request), ++n_events) {
    const Json json = parse_json(event.text).value();
    streamed += *first_choice(json).find("text")->string();
    if (const std::string* end = first_choice(json).find("finish_reason")->string()) reason = *end;
  }
  EXPECT_EQ(event.code, IBID_END);
  EXPECT_EQ(next(request).code, IBID_END);  // and again
  EXPECT_EQ(streamed, text);
  EXPECT_EQ(reason, "length");
  EXPECT_GT(n_events, 1);
  ibid_request_free(request);
}

std::vector<int64_t> ids_of(const std::string& answer) {
  const Result<Json> json = parse_json(answer);
  std::vector<int64_t> ids;
  if (!json || json->find("choices") == nullptr) return ids;
  for (const Json& id : *first_choice(*json).find("token_ids")->array()) ids.push_back(*id.integer());
  return ids;
}

// What a processor was called with; it forces tokens 70 and 71 in turn after `n_free` free ones.
struct Forcing {
  size_t n_free = 0, fails_at = SIZE_MAX;
  std::atomic<int> n_calls = 0;
  std::atomic<bool> is_freed = false, was_late = false;
  std::atomic<size_t> n_prompt = 0, n_logits = 0;
};
int32_t force(void* user, const int32_t*, size_t n_prompt, const int32_t*, size_t n_answer, float* logits,
              size_t n_logits) {
  auto& of = *static_cast<Forcing*>(user);
  ++of.n_calls;
  if (of.is_freed) of.was_late = true;
  of.n_prompt = n_prompt, of.n_logits = n_logits;
  if (n_answer >= of.fails_at) return 1;
  if (n_answer < of.n_free) return 0;
  for (size_t i = 0; i < n_logits; ++i) logits[i] = i == 70 + n_answer % 2 ? 0.0F : -1e30F;
  return 0;
}

TEST_F(Capi, AProcessorChangesLogitsBeforeEachDraw) {
  const Engine engine(model());
  const std::string asked = body("hello", 9, R"(,"return_token_ids":true,"temperature":0.9)");
  const auto told_with = [&](Forcing& forcing) {
    ibid_request* request = nullptr;
    ibid_error* error = nullptr;
    const ibid_code code = ibid_submit_with(engine.get(), "/v1/completions", asked.data(), asked.size(), force,
                                            &forcing, nullptr, nullptr, &request, &error);
    if (code != IBID_OK) return told(code, nullptr, 0, error);
    Told answer = next(request);
    ibid_request_free(request);
    return answer;
  };
  const std::vector<int64_t> plain = ids_of(engine.call("/v1/completions", asked).text);
  ASSERT_EQ(plain.size(), 9u);
  Forcing idle{.n_free = 100};
  EXPECT_EQ(ids_of(told_with(idle).text), plain);
  EXPECT_GE(idle.n_calls, 9);
  EXPECT_EQ(idle.n_logits, 260u);
  EXPECT_GT(idle.n_prompt, 0u);
  Forcing forcing{.n_free = 3};
  std::vector<int64_t> expected(plain.begin(), plain.begin() + 3);
  for (const int64_t id : {71, 70, 71, 70, 71, 70}) expected.push_back(id);
  EXPECT_EQ(ids_of(told_with(forcing).text), expected);
  Forcing failing{.n_free = 100, .fails_at = 4};
  const Told failed = told_with(failing);
  EXPECT_EQ(failed.code, IBID_INVALID);
  EXPECT_EQ(failed.message, "The logits processor failed.");
}

TEST_F(Capi, AProcessorIsNotCalledOnceItsRequestIsFreed) {
  const Engine engine(model("long.gguf", 1, 2048));
  const std::string asked = body("hello", 2000);
  for (int i = 0; i < 8; ++i) {
    Forcing forcing{.n_free = 5000};
    ibid_request* request = nullptr;
    ASSERT_EQ(ibid_submit_with(engine.get(), "/v1/completions", asked.data(), asked.size(), force, &forcing, nullptr,
                               nullptr, &request, nullptr),
              IBID_OK);
    while (forcing.n_calls < 3) std::this_thread::yield();
    ibid_request_free(request);
    forcing.is_freed = true;
    EXPECT_EQ(engine.call("/v1/completions", body("other")).code, IBID_OK);  // some steps pass
    EXPECT_FALSE(forcing.was_late);
  }
}

TEST_F(Capi, PromptsMayBeTokens) {
  const Engine engine(model());
  const Told tokens = engine.call("/tokenize", R"({"content":"hello"})");
  ASSERT_EQ(tokens.code, IBID_OK) << tokens.message;
  const std::string ids = parse_json(tokens.text)->find("tokens")->text();
  const Told of_ids =
      engine.call("/v1/completions", R"({"prompt":)" + ids + R"(,"seed":5,"ignore_eos":true,"max_tokens":12})");
  EXPECT_EQ(text_of(of_ids.text), text_of(engine.call("/v1/completions", body("hello")).text));
}

TEST_F(Capi, NamedCallsAreTheirRoutes) {
  const Engine engine(model());
  const auto named = [&](auto function, const std::string& asked) {
    char* text = nullptr;
    size_t n = 0;
    ibid_error* error = nullptr;
    const ibid_code code = function(engine.get(), asked.data(), asked.size(), &text, &n, &error);
    return told(code, text, n, error);
  };
  const Told vectors = named(ibid_embed, R"({"input":["a","b"]})");
  ASSERT_EQ(vectors.code, IBID_OK) << vectors.message;
  EXPECT_EQ(parse_json(vectors.text)->find("data")->array()->size(), 2u);
  EXPECT_EQ(parse_json(named(ibid_tokenize, R"({"content":"abc"})").text)->find("tokens")->array()->size(), 3u);
  EXPECT_EQ(
      *parse_json(named(ibid_detokenize, R"({"tokens":[97,98]})").text)->find("content")->string(),
      text_of(R"({"choices":[{"text":)" +
              parse_json(engine.call("/detokenize", R"({"tokens":[97,98]})").text)->find("content")->text() + "}]}"));
  EXPECT_EQ(named(ibid_score, R"({"text_1":"a","text_2":"b"})").code, IBID_INVALID);  // the model has no such head
  const Told rendered = named(ibid_render, R"({"messages":[{"role":"user","content":"hi there"}]})");
  ASSERT_EQ(rendered.code, IBID_OK) << rendered.message;
  EXPECT_NE(parse_json(rendered.text)->find("prompt")->string()->find("hi there"), std::string::npos);
  char* text = nullptr;
  size_t n = 0;
  const ibid_code code = ibid_metrics(engine.get(), &text, &n, nullptr);
  EXPECT_NE(told(code, text, n, nullptr).text.find("# TYPE ibid_"), std::string::npos);
  EXPECT_NE(engine.get("/v1/models").text.find("tiny"), std::string::npos);
}

// The parts of requests with callbacks, and how often each has ended.
struct Gathered {
  std::mutex mutex;
  std::condition_variable changed;
  std::string text;
  int n_ends = 0;
  ibid_code end = IBID_OK;
  static void take(void* user, ibid_code code, const char* text, size_t n_bytes) {
    auto& self = *static_cast<Gathered*>(user);
    const std::lock_guard lock(self.mutex);
    if (code == IBID_OK) {
      self.text.append(text, n_bytes);
      return;
    }
    self.end = code;
    ++self.n_ends;
    self.changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return n_ends > 0; });
  }
};

TEST_F(Capi, CallbacksReceiveWhatIsPulledElse) {
  const Engine engine(model());
  constexpr int kMany = 24;
  std::vector<Gathered> gathered(kMany);
  std::vector<ibid_request*> requests;
  for (int i = 0; i < kMany; ++i)
    requests.push_back(engine.submit(body("p" + std::to_string(i)), Gathered::take, &gathered[static_cast<size_t>(i)]));
  for (Gathered& one : gathered) one.wait();
  for (ibid_request* request : requests) {
    EXPECT_EQ(next(request).code, IBID_INVALID);
    ibid_request_free(request);
  }
  for (int i = 0; i < kMany; ++i) {
    const Gathered& one = gathered[static_cast<size_t>(i)];
    EXPECT_EQ(one.n_ends, 1);
    EXPECT_EQ(one.end, IBID_END);
    EXPECT_EQ(text_of(one.text), text_of(engine.call("/v1/completions", body("p" + std::to_string(i))).text));
  }
}

TEST_F(Capi, ACallbackMayFreeItsRequestAndBeginAnother) {
  const Engine engine(model());
  struct Chain {
    const Engine* engine;
    Gathered last;
    std::mutex mutex;
    ibid_request* request = nullptr;
    int n_left = 5;
    static void take(void* user, ibid_code code, const char* text, size_t n_bytes) {
      auto& self = *static_cast<Chain*>(user);
      if (code == IBID_OK) return;
      const std::lock_guard lock(self.mutex);
      EXPECT_EQ(ibid_close(self.engine->get()), IBID_INVALID);  // not from here
      ibid_request_free(std::exchange(self.request, nullptr));
      if (--self.n_left > 0) {
        self.request = self.engine->submit(body("again"), take, user);
      } else {
        Gathered::take(&self.last, code, text, n_bytes);
      }
    }
  } chain{.engine = &engine, .last = {}, .mutex = {}};
  {
    const std::lock_guard lock(chain.mutex);
    chain.request = engine.submit(body("again"), Chain::take, &chain);
  }
  chain.last.wait();
  EXPECT_EQ(chain.n_left, 0);
}

TEST_F(Capi, ARequestThatIsCancelledFails) {
  const Engine engine(model("long.gguf", 1, 16384), R"(,"ctx":16384,"max-sequences":1)");
  ibid_request* running = engine.submit(body("a", 16000, R"(,"stream":true)"));
  ASSERT_EQ(next(running).code, IBID_OK);
  ibid_request* waiting = engine.submit(body("b", 16000));
  EXPECT_EQ(next(waiting, 0).code, IBID_PENDING);
  EXPECT_EQ(ibid_cancel(waiting), IBID_OK);
  const Told ended = next(waiting);
  EXPECT_EQ(ended.code, IBID_UNAVAILABLE);
  EXPECT_EQ(ended.message, "The request was cancelled.");
  EXPECT_EQ(next(waiting).code, IBID_UNAVAILABLE);
  EXPECT_EQ(ibid_cancel(waiting), IBID_OK);  // which is over
  ibid_request_free(waiting);
  ibid_request_free(running);  // while it runs
  EXPECT_EQ(engine.call("/v1/completions", body("c")).code, IBID_OK);
}

TEST_F(Capi, ClosingEndsWhatRuns) {
  Engine engine(model("long.gguf", 1, 16384), R"(,"ctx":16384)");
  Gathered gathered;
  ibid_request* told_by_callback = engine.submit(body("a", 16000), Gathered::take, &gathered);
  ibid_request* pulled = engine.submit(body("b", 16000));
  std::thread puller([&] { EXPECT_EQ(next(pulled).code, IBID_CLOSED); });
  engine.close();
  puller.join();
  EXPECT_EQ(gathered.n_ends, 1);
  EXPECT_EQ(gathered.end, IBID_CLOSED);
  EXPECT_EQ(next(pulled).code, IBID_CLOSED);
  EXPECT_EQ(ibid_cancel(pulled), IBID_OK);
  ibid_request_free(pulled);
  ibid_request_free(told_by_callback);
}

TEST_F(Capi, ErrorsNameWhatIsWrong) {
  ibid_engine* none = nullptr;
  EXPECT_EQ(open_told("[]", &none).code, IBID_INVALID);
  EXPECT_EQ(open_told("{", &none).code, IBID_INVALID);
  EXPECT_EQ(open_told(R"({"modle":"x"})", &none).code, IBID_INVALID);
  const Told unknown = open_told(R"({"ctxx":5})", &none);
  EXPECT_NE(unknown.message.find("--ctx"), std::string::npos) << unknown.message;
  const Told socket = open_told(R"({"api_key":"secret-of-clients"})", &none);
  EXPECT_EQ(socket.code, IBID_UNSUPPORTED);
  EXPECT_EQ(socket.field, "api_key");
  EXPECT_EQ(open_told(R"({"model":"/nowhere/at/all.gguf"})", &none).code, IBID_NOT_FOUND);
  EXPECT_EQ(open_told(R"({"model":["a=x.gguf","b=y.gguf"]})", &none).code, IBID_INVALID);
  EXPECT_EQ(open_told(R"({"max-sequences":8,"max-tokens-per-step":4})", &none).code, IBID_INVALID);
  EXPECT_EQ(ibid_open(nullptr, &none, nullptr), IBID_INVALID);
  EXPECT_EQ(none, nullptr);

  const Engine engine(model());
  const Told field = engine.call("/v1/completions", R"({"prompt":"a","temperature":-1})");
  EXPECT_EQ(field.code, IBID_INVALID);
  EXPECT_EQ(field.field, "temperature");
  EXPECT_EQ(*parse_json(field.json)->find("error")->find("param")->string(), "temperature");
  EXPECT_EQ(engine.call("/v1/completions", "{").code, IBID_INVALID);
  EXPECT_EQ(engine.call("/v1/completions", std::string("\xff\x00", 2)).code, IBID_INVALID);
  EXPECT_EQ(engine.call("/v1/nothing", "{}").code, IBID_NOT_FOUND);
  EXPECT_EQ(engine.get("/v1/completions").code, IBID_INVALID);  // which is a POST
  EXPECT_EQ(engine.call("/v1/completions", body("a", 5, R"(,"stream":true)")).field, "stream");
  EXPECT_EQ(engine.call("/v1/completions", std::string(9 << 20, ' ')).code, IBID_INVALID);
  // Whoever does not ask for sentences gets the code.
  char* text = nullptr;
  EXPECT_EQ(ibid_call(engine.get(), "/v1/nothing", nullptr, 0, &text, nullptr, nullptr), IBID_NOT_FOUND);
  EXPECT_EQ(ibid_call(engine.get(), nullptr, nullptr, 0, &text, nullptr, nullptr), IBID_INVALID);
  EXPECT_EQ(text, nullptr);
  EXPECT_EQ(engine.call("/v1/completions", body("a")).code, IBID_OK);
}

TEST_F(Capi, AFullQueueIsBusy) {
  const Engine engine(model("long.gguf", 1, 16384), R"(,"ctx":16384,"max-sequences":1,"max-waiting":1)");
  ibid_request* running = engine.submit(body("a", 16000));
  ibid_request* waiting = engine.submit(body("b", 16000));
  const Told third = engine.call("/v1/completions", body("c"));
  EXPECT_EQ(third.code, IBID_BUSY) << third.message;
  ibid_request_free(waiting);
  ibid_request_free(running);
}

TEST_F(Capi, TwoEnginesShareAProcess) {
  const std::string first_model = model("first.gguf", 1), second_model = model("second.gguf", 2);
  const Engine first(first_model);
  const std::string alone = text_of(first.call("/v1/completions", body("x", 60)).text);
  {
    const Engine second(second_model), same(first_model);
    std::vector<std::thread> threads;
    std::atomic<int> n_same = 0;
    for (const Engine* engine : {&first, &same}) {
      threads.emplace_back([&, engine] {
        for (int i = 0; i < 10; ++i) n_same += text_of(engine->call("/v1/completions", body("x", 60)).text) == alone;
      });
    }
    EXPECT_NE(text_of(second.call("/v1/completions", body("x", 60)).text), alone);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(n_same, 20);
    ibid_engine* third = nullptr;
    const Told other = open_told(R"({"model":")" + first_model + R"(","threads":1,"cpu-isa":"baseline"})", &third);
    if (other.code == IBID_OK) {
      EXPECT_EQ(ibid_close(third), IBID_OK);  // of a CPU that has no other
    } else {
      EXPECT_EQ(other.field, "cpu-isa");
    }
  }
  EXPECT_EQ(text_of(first.call("/v1/completions", body("x", 60)).text), alone);
}

TEST_F(Capi, ThreadsGetWhatEachWouldGetAlone) {
  const Engine engine(model());
  std::vector<std::string> alone;
  for (int i = 0; i < 8; ++i) alone.push_back(text_of(engine.call("/v1/completions", body(std::to_string(i))).text));
  std::vector<std::thread> threads;
  std::atomic<int> n_same = 0;
  for (size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 6; ++k)
        n_same += text_of(engine.call("/v1/completions", body(std::to_string(i))).text) == alone[i];
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_same, 48);
}

#ifndef __SANITIZE_THREAD__  // which ends a child of a process with threads
TEST_F(Capi, AChildOfAForkIsRefusedByASentence) {
  const Engine engine(model());
  const pid_t child = fork();
  if (child == 0) {
    char* text = nullptr;
    ibid_error* error = nullptr;
    const std::string asked = body("a");
    const ibid_code code =
        ibid_call(engine.get(), "/v1/completions", asked.data(), asked.size(), &text, nullptr, &error);
    const bool is_said = std::string(ibid_error_message(error)).find("fork") != std::string::npos;
    _exit(code == IBID_FORKED && is_said && ibid_close(engine.get()) == IBID_FORKED ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(engine.call("/v1/completions", body("a")).code, IBID_OK);
}
#endif

}  // namespace
}  // namespace ibid
