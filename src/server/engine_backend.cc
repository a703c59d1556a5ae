#include "server/engine_backend.h"

#include "engine/engine_thread.h"

namespace ibid {
namespace {

class EngineBackend final : public Backend {
 public:
  explicit EngineBackend(EngineParts parts) : parts_(std::move(parts)) {}
  ~EngineBackend() override {
    stop();
    parts_.engine = nullptr;  // before what it refers to
  }

  void start(OnOutput on_output) override {
    thread_ = std::make_unique<EngineThread>(std::move(parts_.engine), std::move(on_output));
  }
  void stop() override { thread_ = nullptr; }
  RequestId next_id() override { return thread_->next_id(); }
  bool is_full() const override { return thread_->is_full(); }
  Status submit(Request request) override { return thread_->submit(std::move(request)); }
  void cancel(RequestId id) override { thread_->cancel(id); }
  EngineStats stats() const override { return thread_->stats(); }
  double heartbeat() const override { return thread_->heartbeat(); }
  const Clock& clock() const override { return steady_clock(); }
  const ModelInfo& model() const override { return parts_.info; }
  const Tokenizer& tokenizer() const override { return *parts_.tokenizer; }

  Result<ChatPrompt> render_chat(const Json& messages, bool add_generation_prompt, const Json& kwargs) const override {
    if (!parts_.chat_template) {
      return unsupported("Chat is switched off, because the model's chat template cannot be used: " +
                             parts_.chat_template.error().message + " Completions are served.",
                         "messages");
    }
    ChatInput input;
    name_tokens(*parts_.tokenizer, input);
    input.messages = messages.text();
    input.add_generation_prompt = add_generation_prompt;
    if (const Json::Object* members = kwargs.object()) {
      for (const Json::Member& member : *members) input.extra.emplace_back(member.first, member.second.text());
    }
    Result<RenderedPrompt> prompt = parts_.chat_template->render(input);
    // A template that runs out of its budget is no full queue: trying again would not help.
    if (!prompt)
      return invalid("The model's chat template refuses these messages: " + prompt.error().message, "messages");
    return ChatPrompt{std::move(prompt->text), std::move(prompt->plain_ranges)};
  }

 private:
  EngineParts parts_;
  std::unique_ptr<EngineThread> thread_;
};

}  // namespace

std::unique_ptr<Backend> make_engine_backend(EngineParts parts) {
  return std::make_unique<EngineBackend>(std::move(parts));
}

}  // namespace ibid
