// Chat with a model in the terminal, or answer once.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <random>

#include "cli/chat.h"
#include "cli/loading.h"
#include "cli/options.h"
#include "format/model_digest.h"
#include "server/build_requests.h"

namespace ibid::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;
void on_interrupt(int) { interrupted = 1; }

constexpr const char* kHelp =
    "/help           this\n"
    "/clear          forget what was said\n"
    "/system TEXT    set the system message and forget what was said\n"
    "/temp X         temperature (0: always the likeliest token)\n"
    "/seed N         the same seed gives the same answer\n"
    "/stats          times of each answer, on or off\n"
    "/quit           leave (or Ctrl-D)\n"
    "Ctrl-C stops an answer.\n";

struct Answer {
  std::string text;
  FinishReason reason = FinishReason::kNone;
  Error error;
  Usage usage;
  Timing timing;
};

// One request, streamed to standard output.
Result<Answer> answer(Engine& engine, Request request) {
  static uint64_t next_id = 1;
  request.id = RequestId{next_id++};
  RequestId id = request.id;
  interrupted = 0;
  TRY(engine.submit(std::move(request)));
  Answer out;
  std::vector<Output> outputs;
  while (out.reason == FinishReason::kNone) {
    if (interrupted) engine.cancel(id);
    outputs.clear();
    if (!engine.step(outputs)) return unavailable("the engine stopped before the answer was over");
    for (Output& o : outputs) {
      std::fwrite(o.text.data(), 1, o.text.size(), stdout);
      std::fflush(stdout);
      out.text += o.text;
      out.usage = o.usage;
      out.timing = o.timing;
      if (o.finished) out.reason = o.reason, out.error = o.error;
    }
  }
  return out;
}

void print_stats(const Answer& a, uint64_t seed) {
  double to_first = a.timing.first_token - a.timing.arrived;
  double decoding = a.timing.last_token - a.timing.first_token;
  std::fprintf(stderr, "%s\n",
               fmt::format("first token after {:.0f} ms ({} prompt tokens, {} of them cached); {} tokens, {:.1f} "
                           "tokens/s, {} of {} guesses "
                           "right; seed {}",
                           to_first * 1e3, a.usage.prompt_tokens, a.usage.cached_tokens, a.usage.completion_tokens,
                           decoding > 0 ? (a.usage.completion_tokens - 1) / decoding : 0.0, a.usage.accepted_tokens,
                           a.usage.drafted_tokens, seed)
                   .c_str());
}

class Chat {
 public:
  // `chat` is null where the text is continued without a template.
  Chat(Engine& engine, const Loaded& loaded, const ChatTemplate* chat, const RunOptions& options)
      : engine_(engine),
        loaded_(loaded),
        template_(chat),
        options_(options),
        defaults_(sampling_defaults(*loaded.file, {})),
        system_(options.system) {
    seed_ = options.seed.value_or(std::random_device{}() | (static_cast<uint64_t>(std::random_device{}()) << 32));
  }

  Status ask(const std::string& text) {
    std::vector<ChatMessage> messages = messages_;
    messages.push_back({"user", text});
    ASSIGN_OR_RETURN(std::vector<TokenId> prompt, chat_prompt(*template_, *loaded_.tokenizer, system_, messages));
    ASSIGN_OR_RETURN(Answer a, go_on(std::move(prompt)));
    messages.push_back({"assistant", a.text});
    messages_ = std::move(messages);
    return {};
  }

  Status complete(const std::string& text) {
    std::vector<TokenId> prompt = loaded_.tokenizer->encode(text, {.add_special = true});
    auto a = go_on(std::move(prompt));
    return a ? Status{} : Status{a.error()};
  }

  // True while the terminal goes on.
  bool command(const std::string& line) {
    std::string word = line.substr(0, line.find(' '));
    std::string rest = line.size() > word.size() ? line.substr(word.size() + 1) : "";
    if (word == "/quit" || word == "/exit") return false;
    if (word == "/clear")
      messages_.clear();
    else if (word == "/system")
      system_ = rest, messages_.clear();
    else if (word == "/stats")
      options_.stats = !options_.stats;
    else if (word == "/temp")
      set_temperature(rest);
    else if (word == "/seed")
      seed_ = std::strtoull(rest.c_str(), nullptr, 10);
    else
      std::fputs(kHelp, stdout);
    return true;
  }

  // All but the prompt. Read as the API reads it, so that the flags mean what its fields mean.
  Result<Request> request() const {
    Json::Object body = options_.sampling;
    body.emplace_back("prompt", Json(std::string("x")));
    if (options_.max_tokens >= 0) body.emplace_back("max_tokens", Json(int64_t{options_.max_tokens}));
    ASSIGN_OR_RETURN(const ApiRequest api,
                     parse_api_request(Endpoint::kCompletions, Json(std::move(body)), ApiLimits(), defaults_));
    return build_common(api, *loaded_.tokenizer);
  }

 private:
  void set_temperature(const std::string& text) {
    const Status status = set_sampling(options_.sampling, *find_parameter("temperature"), text);
    if (!status) std::fprintf(stderr, "error: %s\n", status.error().message.c_str());
  }

  Result<Answer> go_on(std::vector<TokenId> prompt) {
    ASSIGN_OR_RETURN(Request r, request());
    r.prompt = std::move(prompt);
    r.sampling.seed = seed_;
    ASSIGN_OR_RETURN(Answer a, answer(engine_, std::move(r)));
    if (a.reason == FinishReason::kError) return a.error;
    std::fputs(a.reason == FinishReason::kCancelled ? " [stopped]\n" : "\n", stdout);
    std::fflush(stdout);
    if (options_.stats) print_stats(a, seed_);
    return a;
  }

  Engine& engine_;
  const Loaded& loaded_;
  const ChatTemplate* template_;
  RunOptions options_;
  SamplingDefaults defaults_;
  std::string system_;
  std::vector<ChatMessage> messages_;
  uint64_t seed_ = 0;
};

int converse(Chat& chat, const Loaded& loaded) {
  bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal)
    std::fprintf(stderr, "%s, %d tokens of context. /help says what else can be typed.\n", loaded.description().c_str(),
                 loaded.context_len);
  std::string line;
  while (true) {
    if (terminal) std::fputs("\n> ", stdout), std::fflush(stdout);
    interrupted = 0;
    if (!std::getline(std::cin, line)) {
      if (interrupted && terminal) {
        std::cin.clear();
        std::clearerr(stdin);
        continue;
      }
      break;
    }
    if (line.empty()) continue;
    if (line[0] == '/') {
      if (!chat.command(line)) break;
      continue;
    }
    if (Status s = chat.ask(line); !s) std::fprintf(stderr, "error: %s\n", s.error().message.c_str());
  }
  if (terminal) std::fputs("\n", stdout);
  return kOk;
}

}  // namespace

int run(const RunOptions& options) {
  if (options.raw && !options.prompt) return fail(invalid("--raw continues a text: give one with -p"), kUsage);
  StepLimits limits{.step_tokens = 512,
                    .max_sequences = 1,
                    .max_drafts = options.spec.max_drafts(),
                    .draft_model = options.spec.draft_model};
  MemoryPlan tiers;
  add_tier_parts(tiers, options.tiers);
  auto loaded = load(options.model, limits, tiers);
  if (!loaded) return fail(loaded.error());
  EngineOptions engine_options = loaded->engine_options(limits);
  use_tiers(options.tiers, kv_bytes_of_block(*loaded->model, engine_options.kv_dtype, engine_options.block_len),
            engine_options);
  if (!options.tiers.disk_folder.empty()) engine_options.model_digest = model_digest(*loaded->file).hex();
  auto engine = Engine::create(*loaded->model, loaded->tokenizer, *loaded->stream, engine_options);
  if (!engine) return fail(engine.error());
  if (Status used = use_draft_model(**engine, *loaded, limits); !used) return fail(used.error());
  struct sigaction action = {};
  action.sa_handler = on_interrupt;  // without SA_RESTART, so that Ctrl-C also ends a wait for input
  sigaction(SIGINT, &action, nullptr);

  std::optional<ChatTemplate> chat_template;
  if (!options.raw) {  // which would warn of a template that it lacks and does not need
    auto read = load_template(*loaded->file, *loaded->tokenizer);
    if (!read) return fail(invalid(read.error().message + " --raw -p TEXT continues a text without it."));
    chat_template = *std::move(read);
  }
  Chat chat(**engine, *loaded, chat_template ? &*chat_template : nullptr, options);
  if (auto request = chat.request(); !request)
    return fail(request.error(), kUsage);  // flags that contradict each other
  if (!options.prompt) return converse(chat, *loaded);
  Status s = options.raw ? chat.complete(*options.prompt) : chat.ask(*options.prompt);
  if (!s) return fail(s.error());
  return interrupted ? kInterrupted : kOk;
}

}  // namespace ibid::cli
