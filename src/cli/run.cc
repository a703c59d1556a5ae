// Chat with a model in the terminal, or answer once.
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <random>

#include "base/quoted.h"
#include "cli/chat/chat.h"
#include "cli/chat/chat_session.h"
#include "cli/chat/picture_file.h"
#include "cli/options/model_names.h"
#include "cli/options/options.h"
#include "cli/picture_parts.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/line_editor.h"
#include "cli/terminal/line_history.h"
#include "cli/terminal/line_wrap.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal_markdown.h"
#include "host/host.h"
#include "server/fields/parameters.h"
#include "server/request/engine_backend.h"

namespace ibid::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;
void on_interrupt(int) { interrupted = 1; }

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
  if (!options.raw) return {};
  if (!options.prompt) return invalid("--raw continues a text: give one with -p");
  if (!options.tools.empty() || !options.history.empty() || !options.images.empty())
    return invalid("--raw continues a text: --tools, --history and --image are of conversations");
  return {};
}

// Parts of the first message.
Result<std::vector<Json>> read_pictures(const std::vector<std::string>& files) {
  std::vector<Json> out;
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(Json picture, read_picture_part(file));
    out.push_back(std::move(picture));
  }
  return out;
}

constexpr size_t kMaxPiped = 16 << 20;
constexpr int kPatience = 2000;  // ms

// Whether something may come there: a pipe, a file or a socket, and no terminal or /dev/null.
bool is_piped(int fd) {
  struct stat info = {};
  return fstat(fd, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISREG(info.st_mode) || S_ISSOCK(info.st_mode));
}

// All of standard input; prints a notice if none comes.
Result<std::string> piped_text() {
  pollfd ready = {STDIN_FILENO, POLLIN, 0};
  if (poll(&ready, 1, kPatience) == 0)
    std::fputs("Waiting for the end of standard input, which goes after the prompt; < /dev/null gives none.\n", stderr);
  std::string text;
  char piece[65536];
  for (ssize_t n = 0; (n = ::read(STDIN_FILENO, piece, sizeof piece)) > 0;) {
    text.append(piece, static_cast<size_t>(n));
    if (text.size() > kMaxPiped) return invalid("Standard input has more than 16 MiB.");
  }
  return text;
}

// The prompt, and after it what is piped in.
Result<std::string> whole_prompt(const RunOptions& options) {
  if (!is_piped(STDIN_FILENO)) return *options.prompt;
  ASSIGN_OR_RETURN(std::string text, piped_text());
  if (options.raw) return *options.prompt + text;
  while (text.ends_with('\n')) text.pop_back();
  if (text.empty()) return *options.prompt;
  return options.prompt->empty() ? text : *options.prompt + "\n\n" + text;
}

}  // namespace

int run(const RunOptions& given) {
  RunOptions options = given;
  if (const Status wrong = refuse(options); !wrong) return fail(wrong.error(), kUsage);
  if (options.prompt) {
    Result<std::string> prompt = whole_prompt(options);
    if (!prompt) return fail(prompt.error());
    options.prompt = *std::move(prompt);
  }
  auto fields = fields_of(options);
  if (!fields) return fail(fields.error(), kUsage);
  auto pictures = read_pictures(options.images);
  if (!pictures) return fail(pictures.error(), kUsage);
  // One question without pictures: the folder's own tower is not loaded.
  const bool is_text = options.raw || (options.prompt && options.images.empty() && options.history.empty());
  if (is_text && options.model.pictures.tower.empty()) options.model.pictures.tower = host::kNoTower;
  const host::HostOptions wanted = {.model = options.model,
                                    .limits = {.step_tokens = 512, .has_grammars = true, .spec = options.spec},
                                    .tiers = options.tiers,
                                    .measures = false};
  Result<host::Hosted> hosted = host::open(wanted, terminal_progress());
  if (!hosted) return fail(hosted.error());
  host::Loaded& loaded = hosted->loaded;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;  // without SA_RESTART, so that Ctrl-C also ends a wait for input
  sigaction(SIGINT, &action, nullptr);

  Result<ChatTemplate> chat_template = invalid("a text is continued");  // with --raw none is read, nor missed
  if (!options.raw) {
    chat_template = host::load_template(*loaded.file, *loaded.tokenizer);
    if (!chat_template)
      return fail(invalid(chat_template.error().message + " --raw -p TEXT continues a text without it."));
  }
  const ModelFacts facts = {.context_len = loaded.context_len,
                            .trained_len = loaded.model->config().trained_context_len};
  const std::string banner =
      fmt::format("{} ({}): {}, {} tokens of context, {} threads", served_name(options.model.model),
                  shown(std::filesystem::path(loaded.path).filename().string()), loaded.description(),
                  facts.context_len, loaded.team->n_threads());
  auto parts = picture_parts(loaded, options.model.pictures);
  if (!parts) return fail(parts.error());
  auto backend =
      make_engine_backend({.info = {.context_len = facts.context_len, .sampling = sampling_defaults(*loaded.file, {})},
                           .tokenizer = loaded.tokenizer,
                           .chat_template = std::move(chat_template),
                           .engine = std::move(hosted->engine),
                           .adapters = loaded.adapters,
                           .pictures = std::move(parts->reader),
                           .encoder = std::move(parts->encoder),
                           .keep = std::make_shared<host::Loaded>(std::move(loaded))});
  const uint64_t seed =
      options.seed.value_or(std::random_device{}() | (static_cast<uint64_t>(std::random_device{}()) << 32));
  Chat chat(*backend, *std::move(fields), options.system, seed);
  if (const Status wrong = chat.check(); !wrong)
    return fail(wrong.error(), kUsage);  // flags that contradict each other
  if (!pictures->empty() && !chat.reads_pictures()) return fail(no_pictures(), kUsage);
  for (Json& picture : *pictures) chat.attach(std::move(picture));
  std::error_code ignored;
  if (!options.history.empty() && std::filesystem::exists(options.history, ignored)) {
    if (const Status read = chat.load(options.history); !read) return fail(read.error());
  }
  LineEditor editor(chat_candidates, LineHistory(options.keeps_lines ? line_history_path() : ""));
  ChatSession session(chat, editor, options, facts, interrupted);
  if (!options.prompt) {
    if (editor.is_terminal()) {
      const std::string before =
          chat.n_messages() > 0 ? fmt::format(", {} messages of before", chat.n_messages()) : std::string();
      std::fprintf(
          stderr, "%s\n",
          wrapped(harmless(banner) + before + ". /help lists the commands.", columns_of(STDERR_FILENO)).c_str());
    }
    session.converse();
    return kOk;
  }
  const Status s = options.raw ? session.complete(*options.prompt) : session.ask(*options.prompt);
  if (!s) return fail(s.error());
  return interrupted ? kInterrupted : kOk;
}

}  // namespace ibid::cli
