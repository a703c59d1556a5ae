// Backend: what the server needs of an engine and its model. EngineBackend (engine_backend.h) is the real one; tests
// use a scripted one. All members may be called from any thread unless stated otherwise.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "engine/engine.h"
#include "engine/state/request.h"
#include "model/adapter_shelf.h"
#include "sample/grammar/grammars.h"
#include "server/fields/chat_prompt.h"
#include "server/fields/sampling_defaults.h"
#include "text/jinja/chat_template.h"
#include "text/output/answer_format.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid {

class PictureReader;  // server/request/picture_reader.h

struct ModelInfo {
  std::string name;  // as /v1/models gives it
  std::string architecture;
  std::string digest;              // hex; short forms of it name the model in answers
  int32_t context_len = 0;         // tokens
  int64_t created = 0;             // seconds since 1970
  SamplingDefaults sampling = {};  // of requests that do not set it
  int32_t width = 0;               // values of a text's vector; 0: it makes none
  Pooling pooling = Pooling::kMean;
  bool is_encoder = false;  // vectors are all that it makes, but for scores
  int32_t n_labels = 0;     // that its head scores; 0: it has none, and ranks nothing
  std::string file = {};    // its file's or folder's own name, without a path
  // Of the file, as Ollama's clients print them; 0 or empty: not known.
  int64_t trained_context_len = 0;  // tokens; the longest it promises
  int64_t file_bytes = 0;
  int64_t n_parameters = 0;
  std::string weights = {};  // "Q4_1"
  std::string license = {};
  // Of its engine, as routers ask for them.
  int32_t block_len = 0;      // tokens
  std::string kv_dtype = {};  // "F16"
  bool shares_prefixes = false;
};

class Backend {
 public:
  // Called on the engine's thread, at least once per step, in order, with the state after it; must not block. A step
  // may make nothing known. The outputs may be moved from.
  using OnOutput = std::function<void(std::span<Output>, const EngineStats&)>;

  virtual ~Backend() = default;
  // Once, before submit. After stop() returns, `on_output` is not called any more.
  virtual void start(OnOutput on_output) = 0;
  virtual void stop() = 0;

  virtual RequestId next_id() = 0;
  // True where submit() would refuse anything; asked before a prompt is tokenised for nothing.
  virtual bool is_full() const = 0;
  // kInvalid names the field; kExhausted: the queue is full.
  virtual Status submit(Request request) = 0;
  virtual void cancel(RequestId id) = 0;
  virtual EngineStats stats() const = 0;
  virtual double heartbeat() const = 0;  // when the engine's thread last turned or its step got on, on clock()
  virtual const Clock& clock() const = 0;

  virtual const ModelInfo& model() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  // Those that requests have asked for.
  grammar::Grammars& grammars() const {
    std::call_once(grammars_once_, [this] {
      grammars_ = std::make_shared<grammar::Grammars>(tokenizer(), static_cast<size_t>(max_grammars_bytes_));
    });
    return *grammars_;
  }
  void limit_grammars(int64_t max_bytes) { max_grammars_bytes_ = max_bytes; }  // before any is asked for
  virtual Result<RenderedPrompt> render_chat(const ChatPrompt& chat) const = 0;
  // Those that requests may name in the model's place; null: none, and none may be loaded.
  virtual AdapterShelf* adapters() const { return nullptr; }
  // What reads the pictures of requests; null: the model reads none.
  virtual const PictureReader* pictures() const { return nullptr; }
  virtual std::string_view chat_template() const = 0;  // its source; empty: none
  // How the model writes reasoning and calls, by its chat template.
  virtual const std::shared_ptr<const AnswerFormat>& answer_format() const = 0;

 private:
  int64_t max_grammars_bytes_ = grammar::Grammars::kDefaultBytes;
  mutable std::once_flag grammars_once_;
  mutable std::shared_ptr<grammar::Grammars> grammars_;
};

}  // namespace ibid
