// Chat with a model in the terminal, or answer once.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <random>

#include "cli/chat.h"
#include "cli/drafters.h"
#include "cli/line_editor.h"
#include "cli/loading.h"
#include "cli/options.h"
#include "cli/terminal_markdown.h"
#include "format/model_digest.h"
#include "server/engine_backend.h"
#include "server/parameters.h"

namespace ibid::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;
void on_interrupt(int) { interrupted = 1; }

constexpr const char* kHelp =
    "/help             this\n"
    "/clear            forget what was said\n"
    "/system TEXT      set the system message and forget what was said\n"
    "/regen            answer the last question again, with the next seed\n"
    "/edit [TEXT]      ask the last question in another way\n"
    "/set NAME VALUE   any field of the API: /set temp 0.2, /set seed 7, /set stop \"END\"; null takes it out\n"
    "/save [FILE]      write the conversation; /load FILE reads one\n"
    "/stats            times of each answer, on or off\n"
    "/quit             leave (or Ctrl-D)\n"
    "Tab completes, the arrows bring back lines, Ctrl-C stops an answer.\n";
constexpr const char* kCommands[] = {"/help", "/clear", "/system", "/regen", "/edit",
                                     "/set",  "/save",  "/load",   "/stats", "/quit"};
constexpr const char* kRefused = "The user refused this call.";

std::vector<std::string> candidates(const std::string& line) {
  std::vector<std::string> out;
  const size_t first_blank = line.find(' ');
  if (!line.starts_with('/')) return out;
  if (first_blank == std::string::npos) {
    out.assign(std::begin(kCommands), std::end(kCommands));
  } else if (line.starts_with("/set ") && line.find(' ', first_blank + 1) == std::string::npos) {
    for (const Parameter& p : parameters()) {
      if (is_settable(p)) out.emplace_back(p.name);
    }
    out.insert(out.end(), {"temp", "seed", "system"});
  } else if (line.starts_with("/save ") || line.starts_with("/load ")) {
    const std::string typed = line.substr(first_blank + 1);
    const std::string folder = typed.substr(0, typed.rfind('/') + 1);
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder.empty() ? "." : folder, ignored))
      out.push_back(folder + entry.path().filename().string() + (entry.is_directory(ignored) ? "/" : ""));
  }
  return out;
}

void say_error(const Error& error) { std::fprintf(stderr, "error: %s\n", harmless(error.message).c_str()); }

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

// An answer as it grows: what a program reads is the text alone, byte for byte; a terminal has it rendered, and
// reasoning and calls of tools beside it.
class Printer final : public AnswerSink {
 public:
  enum class To { kProgram, kPlainTerminal, kTerminal };
  explicit Printer(To to) : to_(to) {}
  void part(const AnswerPart& part) override {
    std::string out;
    if (part.kind == PartKind::kText) {
      end_reasoning(out);
      if (to_ == To::kTerminal) {
        markdown_.push(part.text, out);
      } else {
        out += to_ == To::kProgram ? part.text : harmless(part.text);
      }
    } else if (part.kind == PartKind::kReasoning && to_ != To::kProgram) {
      if (!std::exchange(is_reasoning_, true) && to_ == To::kTerminal) out += "\x1b[2m";
      out += harmless(part.text);
    }
    std::fwrite(out.data(), 1, out.size(), stdout);
    std::fflush(stdout);
  }
  void end(bool is_stopped) {
    std::string out;
    end_reasoning(out);
    if (to_ == To::kTerminal) markdown_.finish(out);
    out += is_stopped ? " [stopped]\n" : "\n";
    std::fwrite(out.data(), 1, out.size(), stdout);
    std::fflush(stdout);
  }

 private:
  void end_reasoning(std::string& out) {
    if (std::exchange(is_reasoning_, false)) out += to_ == To::kTerminal ? "\x1b[0m\n\n" : "\n\n";
  }
  To to_;
  bool is_reasoning_ = false;
  TerminalMarkdown markdown_;
};

Printer::To standard_output() {
  if (isatty(STDOUT_FILENO) == 0) return Printer::To::kProgram;
  const char* term = std::getenv("TERM");
  const bool has_styles = std::getenv("NO_COLOR") == nullptr && term != nullptr && std::string_view(term) != "dumb";
  return has_styles ? Printer::To::kTerminal : Printer::To::kPlainTerminal;
}

class Session {
 public:
  Session(Chat& chat, LineEditor& editor, const RunOptions& options)
      : chat_(chat), editor_(editor), options_(options) {}

  // Once, without a person: calls are told and not answered.
  Status ask(const std::string& text) {
    chat_.say(text);
    return answer(false);
  }

  Status complete(const std::string& text) {
    Printer printer(standard_output());
    ASSIGN_OR_RETURN(const Answer a, chat_.complete(text, printer, interrupted));
    show_end(a, printer);
    return {};
  }

  int converse() {
    std::string line, draft;
    while (true) {
      interrupted = 0;
      if (editor_.is_terminal()) std::fputs("\n", stdout);
      const Typed typed = editor_.read("> ", line, std::exchange(draft, ""));
      if (typed == Typed::kEnd) break;
      if (typed == Typed::kInterrupt || line.empty()) continue;
      editor_.remember(line);
      if (line[0] == '/') {
        if (line == "/quit" || line == "/exit") break;
        report(command(line, draft));
      } else {
        chat_.say(line);
        report(answer(true));
      }
    }
    if (editor_.is_terminal()) std::fputs("\n", stdout);
    return kOk;
  }

 private:
  static void report(const Status& status) {
    if (!status) say_error(status.error());
  }

  void show_end(const Answer& a, Printer& printer) {
    printer.end(a.choice.reason == FinishReason::kCancelled);
    if (options_.stats) print_stats(a, chat_.seed());
  }

  // Until an answer calls no tool, or nobody answers its calls.
  Status answer(bool answers_calls) {
    while (true) {
      interrupted = 0;
      Printer printer(standard_output());
      ASSIGN_OR_RETURN(const Answer a, chat_.answer(printer, interrupted));
      show_end(a, printer);
      const std::vector<AnswerCall> calls = calls_of(a.choice);
      for (const AnswerCall& call : calls)
        std::fprintf(stdout, "call %s(%s)%s\n", harmless(call.name).c_str(), harmless(call.arguments).c_str(),
                     call.is_whole ? "" : " [cut]");
      std::fflush(stdout);
      if (!options_.history.empty()) TRY(chat_.save(options_.history));
      if (!a.choice.asks_for_tools() || !answers_calls) return {};
      if (!answer_calls(calls)) return {};
    }
  }

  // By hand: a line each; an empty one refuses. False where the person leaves it.
  bool answer_calls(const std::vector<AnswerCall>& calls) {
    for (size_t i = 0; i < calls.size(); ++i) {
      std::string line;
      if (editor_.is_terminal())
        std::fprintf(stdout, "What does %s give? (an empty line refuses)\n", harmless(calls[i].name).c_str());
      if (editor_.read("result> ", line) != Typed::kLine) {
        chat_.forget_answer();
        chat_.take_question();
        return false;
      }
      chat_.give(calls[i], i, line.empty() ? kRefused : line);
    }
    return true;
  }

  Status command(const std::string& line, std::string& draft) {
    const std::string word = line.substr(0, line.find(' '));
    const std::string rest = line.size() > word.size() ? line.substr(word.size() + 1) : "";
    if (word == "/clear") return chat_.clear(), Status{};
    if (word == "/system") return chat_.set_system(rest), Status{};
    if (word == "/stats") return options_.stats = !options_.stats, Status{};
    if (word == "/temp") return chat_.set("temperature", rest);
    if (word == "/seed") return chat_.set("seed", rest);
    if (word == "/set") {
      const size_t blank = rest.find(' ');
      if (blank == std::string::npos) return invalid("/set wants a name and a value: /set temp 0.2");
      return chat_.set(rest.substr(0, blank), rest.substr(blank + 1));
    }
    if (word == "/save" || word == "/load") {
      const std::string& file = rest.empty() ? options_.history : rest;
      if (file.empty()) return invalid(word + " wants the name of a file.");
      return word == "/save" ? chat_.save(file) : chat_.load(file);
    }
    if (word == "/regen") {
      if (!chat_.forget_answer()) return invalid("Nothing was asked yet.");
      chat_.next_seed();
      return answer(true);
    }
    if (word == "/edit") return edit(rest, draft);
    std::fputs(kHelp, stdout);
    std::fflush(stdout);
    return {};
  }

  Status edit(const std::string& text, std::string& draft) {
    const std::string old = chat_.take_question();
    if (old.empty()) return invalid("Nothing was asked yet.");
    if (text.empty()) return draft = old, Status{};
    chat_.say(text);
    return answer(true);
  }

  Chat& chat_;
  LineEditor& editor_;
  RunOptions options_;
};

// The flags that are fields of a request.
Result<Json::Object> fields_of(const RunOptions& options) {
  Json::Object fields = options.sampling;
  if (options.max_tokens >= 0) fields.emplace_back("max_tokens", Json(int64_t{options.max_tokens}));
  if (!options.tools.empty()) {
    ASSIGN_OR_RETURN(Json tools, read_tools(options.tools));
    fields.emplace_back("tools", std::move(tools));
  }
  if (!options.json_schema.empty()) {
    ASSIGN_OR_RETURN(Json schema, read_schema(options.json_schema));
    Json::Object named{{"name", Json(std::string("answer"))}, {"schema", std::move(schema)}};
    fields.emplace_back("response_format", Json(Json::Object{{"type", Json(std::string("json_schema"))},
                                                             {"json_schema", Json(std::move(named))}}));
  }
  return fields;
}

Status refuse(const RunOptions& options) {
  if (!options.image.empty())
    return unsupported("--image is not supported: no model that runs here reads pictures", "--image");
  if (!options.raw) return {};
  if (!options.prompt) return invalid("--raw continues a text: give one with -p");
  if (!options.tools.empty() || !options.history.empty())
    return invalid("--raw continues a text: --tools and --history are of conversations");
  return {};
}

}  // namespace

int run(const RunOptions& options) {
  if (const Status wrong = refuse(options); !wrong) return fail(wrong.error(), kUsage);
  auto fields = fields_of(options);
  if (!fields) return fail(fields.error(), kUsage);
  const StepLimits limits = with_drafters({.step_tokens = 512, .max_sequences = 1, .has_grammars = true}, options.spec);
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
  if (Status used = use_drafters(**engine, *loaded, limits); !used) return fail(used.error());
  struct sigaction action = {};
  action.sa_handler = on_interrupt;  // without SA_RESTART, so that Ctrl-C also ends a wait for input
  sigaction(SIGINT, &action, nullptr);

  Result<ChatTemplate> chat_template = invalid("a text is continued");  // with --raw none is read, nor missed
  if (!options.raw) {
    chat_template = load_template(*loaded->file, *loaded->tokenizer);
    if (!chat_template)
      return fail(invalid(chat_template.error().message + " --raw -p TEXT continues a text without it."));
  }
  const std::string description = loaded->description();
  const int32_t context_len = loaded->context_len;
  auto backend =
      make_engine_backend({.info = {.context_len = context_len, .sampling = sampling_defaults(*loaded->file, {})},
                           .tokenizer = loaded->tokenizer,
                           .chat_template = std::move(chat_template),
                           .engine = *std::move(engine),
                           .keep = std::make_shared<Loaded>(*std::move(loaded))});
  const uint64_t seed =
      options.seed.value_or(std::random_device{}() | (static_cast<uint64_t>(std::random_device{}()) << 32));
  Chat chat(*backend, *std::move(fields), options.system, seed);
  if (const Status wrong = chat.check(); !wrong)
    return fail(wrong.error(), kUsage);  // flags that contradict each other
  std::error_code ignored;
  if (!options.history.empty() && std::filesystem::exists(options.history, ignored)) {
    if (const Status read = chat.load(options.history); !read) return fail(read.error());
  }
  LineEditor editor(candidates);
  Session session(chat, editor, options);
  if (!options.prompt) {
    if (editor.is_terminal())
      std::fprintf(stderr, "%s, %d tokens of context%s. /help says what else can be typed.\n", description.c_str(),
                   context_len,
                   chat.n_messages() > 0 ? fmt::format(", {} messages of before", chat.n_messages()).c_str() : "");
    return session.converse();
  }
  const Status s = options.raw ? session.complete(*options.prompt) : session.ask(*options.prompt);
  if (!s) return fail(s.error());
  return interrupted ? kInterrupted : kOk;
}

}  // namespace ibid::cli
