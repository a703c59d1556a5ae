#include "server/request/engine_backend.h"

#include "engine/engine_thread.h"
#include "server/request/build_requests.h"

namespace ibid {
namespace {

class EngineBackend final : public Backend {
 public:
  explicit EngineBackend(EngineParts parts)
      : parts_(std::move(parts)),
        format_(std::make_shared<AnswerFormat>(parts_.chat_template ? parts_.chat_template->answer_format()
                                                                    : AnswerFormat::of_template({}))) {}
  ~EngineBackend() override {
    stop();
    parts_.adapters = nullptr;
    parts_.engine = nullptr;  // before what it refers to
  }

  void start(OnOutput on_output) override {
    thread_ = std::make_unique<EngineThread>(std::move(parts_.engine), std::move(on_output), std::move(parts_.encoder));
  }
  void stop() override { thread_ = nullptr; }
  RequestId next_id() override { return thread_->next_id(); }
  bool is_full() const override { return thread_->is_full(); }
  Status submit(Request request) override { return thread_->submit(std::move(request)); }
  void cancel(RequestId id) override { thread_->cancel(id); }
  EngineStats stats() const override {
    EngineStats stats = thread_->stats();
    if (parts_.recorder) {
      stats.recorded_bytes = parts_.recorder->bytes_written();
      stats.is_recording = parts_.recorder->is_recording();
    }
    return stats;
  }
  double heartbeat() const override { return thread_->heartbeat(); }
  const Clock& clock() const override { return steady_clock(); }
  const ModelInfo& model() const override { return parts_.info; }
  const Tokenizer& tokenizer() const override { return *parts_.tokenizer; }

  AdapterShelf* adapters() const override { return parts_.adapters.get(); }
  const PictureReader* pictures() const override { return parts_.pictures.get(); }
  std::string_view chat_template() const override {
    return parts_.chat_template ? parts_.chat_template->source() : std::string_view();
  }
  const std::shared_ptr<const AnswerFormat>& answer_format() const override { return format_; }
  Result<RenderedPrompt> render_chat(const ChatPrompt& chat) const override {
    if (!parts_.chat_template) {
      return unsupported("Chat is switched off, because the model's chat template cannot be used: " +
                             parts_.chat_template.error().message + " Completions are served.",
                         "messages");
    }
    Result<RenderedPrompt> prompt = ibid::render_chat(*parts_.chat_template, *parts_.tokenizer, chat);
    // A template that runs out of its budget is no full queue: trying again would not help.
    if (!prompt)
      return invalid("The model's chat template refuses these messages: " + prompt.error().message, "messages");
    return prompt;
  }

 private:
  EngineParts parts_;
  std::shared_ptr<const AnswerFormat> format_;
  std::unique_ptr<EngineThread> thread_;
};

}  // namespace

std::unique_ptr<Backend> make_engine_backend(EngineParts parts) {
  return std::make_unique<EngineBackend>(std::move(parts));
}

}  // namespace ibid
