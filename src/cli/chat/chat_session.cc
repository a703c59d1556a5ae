#include "cli/chat/chat_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/quoted.h"
#include "cli/chat/picture_file.h"
#include "cli/options/suggestion.h"
#include "cli/terminal/line_wrap.h"
#include "cli/terminal/terminal_markdown.h"
#include "server/fields/parameters.h"

namespace ibid::cli {
namespace {

constexpr const char* kHelp =
    "/help             this\n"
    "/clear            forget the conversation\n"
    "/system TEXT      set the system message and forget the conversation\n"
    "/regen            answer the last question again, with the next seed\n"
    "/edit [TEXT]      ask the last question in another way\n"
    "/set              what is set\n"
    "/set NAME VALUE   any field of the API: /set temp 0.2, /set seed 7, /set stop \"END\"; null takes it out\n"
    "/image FILE       show a picture with the next question; without FILE, none\n"
    "/save [FILE]      write the conversation\n"
    "/load [FILE]      read one\n"
    "/stats            times of each answer, on or off\n"
    "/quit             leave (or Ctrl-D)\n"
    "\"\"\"               begins a question of several lines and ends it\n"
    "\\                 at a line's end goes on with the next; what is pasted is one question\n"
    "A line that begins with a blank is a question, whatever follows. Tab completes, the arrows bring back lines, "
    "Ctrl-C "
    "stops an answer.\n";
const std::vector<std::string> kCommands = {"/help", "/clear", "/system", "/regen", "/edit", "/set",  "/image",
                                            "/save", "/load",  "/stats",  "/quit",  "/exit", "/temp", "/seed"};
constexpr size_t kListed = 11;  // of these, what Tab offers
constexpr size_t kShown = 200;  // bytes of a value that is shown
constexpr const char* kRefused = "The user refused this call.";

void say_error(const Error& error) {
  std::fprintf(stderr, "%s\n", wrapped("error: " + harmless(error.message), columns_of(STDERR_FILENO)).c_str());
}

void print_stats(const Answer& a, uint64_t seed) {
  double to_first = a.timing.first_token - a.timing.arrived;
  double decoding = a.timing.last_token - a.timing.first_token;
  std::fprintf(stderr, "%s\n",
               fmt::format("first token after {:.0f} ms ({} prompt tokens, {} of them cached); {} tokens, {:.1f} "
                           "tokens/s, {} of {} draft tokens accepted; seed {}",
                           to_first * 1e3, a.usage.prompt_tokens, a.usage.cached_tokens, a.usage.completion_tokens,
                           decoding > 0 ? (a.usage.completion_tokens - 1) / decoding : 0.0, a.usage.accepted_tokens,
                           a.usage.drafted_tokens, seed)
                   .c_str());
}

bool is_command(const std::string& line) {
  if (!line.starts_with('/')) return false;
  const std::string word = line.substr(0, line.find_first_of(" \n"));
  // What was pasted with several lines is a question, but after a command that takes a text.
  if (line.find('\n') != std::string::npos) return word == "/system" || word == "/edit" || word == "/set";
  if (std::ranges::find(kCommands, word) != kCommands.end()) return true;
  std::error_code ignored;
  const bool is_path = word.size() == 1 || word.find('/', 1) != std::string::npos;
  return !is_path && !std::filesystem::exists(word, ignored);
}

Error no_command(const std::string& word) {
  const std::string meant = nearest(word, kCommands);
  return invalid(word + " is no command" + (meant.empty() ? "" : "; did you mean " + meant + "?") +
                 (meant.empty() ? "; " : " ") + "/help lists them, and with a blank before it the line is a question.");
}

void report(const Status& status) {
  if (!status) say_error(status.error());
}

}  // namespace

std::vector<std::string> chat_candidates(const std::string& line) {
  std::vector<std::string> out;
  const size_t first_blank = line.find(' ');
  if (!line.starts_with('/')) return out;
  if (first_blank == std::string::npos) {
    out.assign(kCommands.begin(), kCommands.begin() + kListed);
  } else if (line.starts_with("/set ") && line.find(' ', first_blank + 1) == std::string::npos) {
    for (const Parameter& p : parameters()) {
      if (is_settable(p)) out.emplace_back(p.name);
    }
    out.insert(out.end(), {"temp", "seed", "system"});
  } else if (line.starts_with("/save ") || line.starts_with("/load ") || line.starts_with("/image ")) {
    const std::string typed = line.substr(first_blank + 1);
    const std::string folder = typed.substr(0, typed.rfind('/') + 1);
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder.empty() ? "." : folder, ignored))
      out.push_back(folder + entry.path().filename().string() + (entry.is_directory(ignored) ? "/" : ""));
  }
  return out;
}

Error no_pictures() {
  return unsupported("The model has no vision tower and reads no pictures; --mmproj PATH names one.", "--image");
}

std::string ModelFacts::more() const {
  return context_len < trained_len ? fmt::format(", --ctx N gives more, up to {}", trained_len) : "";
}

Status ChatSession::ask(const std::string& text) {
  chat_.say(text);
  return explained(answer(false), false);
}

Status ChatSession::complete(const std::string& text) {
  TerminalPrinter printer(standard_output());
  const Result<Answer> a = chat_.complete(text, printer, interrupted_);
  if (!a) return explained(a.error(), false);
  show_end(*a, printer);
  return {};
}

void ChatSession::converse() {
  std::string line, draft;
  while (true) {
    interrupted_ = 0;
    if (editor_.is_terminal()) std::fputs("\n", stdout);
    const Typed typed = editor_.read_question(line, std::exchange(draft, ""));
    if (typed == Typed::kEnd) break;
    if (typed == Typed::kInterrupt || line.find_first_not_of(" \n\t") == std::string::npos) continue;
    editor_.remember(line);
    if (is_command(line)) {
      const std::string word = line.substr(0, line.find_first_of(" \n"));
      if (word == "/quit" || word == "/exit") break;
      report(explained(command(line, draft), true));
    } else {
      chat_.say(line);
      report(explained(answer(true), true));
    }
  }
  if (editor_.is_terminal()) std::fputs("\n", stdout);
}

// What to do where the context is full.
Status ChatSession::explained(const Status& status, bool is_chat) const {
  if (status.ok() || status.error().kind != ErrorKind::kExhausted ||
      status.error().message.find("fit into the context") == std::string::npos)
    return status;
  return exhausted(status.error().message +
                   (is_chat                 ? ": /clear begins a new one"
                    : model_.more().empty() ? ": use a shorter one"
                                            : "") +
                   model_.more() + ".");
}

void ChatSession::show_end(const Answer& a, TerminalPrinter& printer) const {
  printer.end(remark(a));
  if (options_.stats) print_stats(a, chat_.seed());
}

// Why an answer is not whole.
std::string ChatSession::remark(const Answer& a) const {
  const bool is_terminal = standard_output() != Shown::kProgram;
  if (a.choice.reason == FinishReason::kCancelled) return "stopped";
  if (a.choice.reason != FinishReason::kLength || !is_terminal) return "";
  const int32_t n = a.usage.prompt_tokens + a.usage.completion_tokens;
  if (n >= model_.context_len) {
    return fmt::format("cut: the context is full, {} of {} tokens; /clear begins a new conversation{}", n,
                       model_.context_len, model_.more());
  }
  return fmt::format("cut: {} tokens are the most of an answer here; -n N or /set max_tokens N gives more",
                     a.usage.completion_tokens);
}

// Until an answer calls no tool, or its calls get no answer.
Status ChatSession::answer(bool answers_calls) {
  while (true) {
    interrupted_ = 0;
    TerminalPrinter printer(standard_output());
    const Result<Answer> a = chat_.answer(printer, interrupted_);
    if (!a) {
      printer.drop();
      return a.error();
    }
    show_end(*a, printer);
    const std::vector<AnswerCall> calls = calls_of(a->choice);
    for (const AnswerCall& call : calls)
      std::fprintf(stdout, "call %s(%s)%s\n", harmless(call.name).c_str(), harmless(call.arguments).c_str(),
                   call.is_whole ? "" : " [cut]");
    std::fflush(stdout);
    if (!options_.history.empty()) TRY(chat_.save(options_.history));
    if (!a->choice.asks_for_tools() || !answers_calls) return {};
    if (!answer_calls(calls)) return {};
  }
}

// By hand: a line each; an empty one refuses. False where the person leaves it.
bool ChatSession::answer_calls(const std::vector<AnswerCall>& calls) {
  for (size_t i = 0; i < calls.size(); ++i) {
    std::string line;
    if (editor_.is_terminal())
      std::fprintf(stdout, "What does %s give? (an empty line refuses)\n", harmless(calls[i].name).c_str());
    if (editor_.read("result> ", line) != Typed::kLine) {
      chat_.drop_question();
      return false;
    }
    chat_.give(calls[i], i, line.empty() ? kRefused : line);
  }
  return true;
}

Status ChatSession::command(const std::string& line, std::string& draft) {
  const std::string word = line.substr(0, line.find_first_of(" \n"));
  const std::string rest = line.size() > word.size() ? line.substr(word.size() + 1) : "";
  if (word == "/clear") return chat_.clear(), said("The conversation is forgotten.");
  if (word == "/system") {
    chat_.set_system(rest);
    return said(rest.empty() ? "There is no system message; the conversation is forgotten."
                             : "The system message is set; the conversation is forgotten.");
  }
  if (word == "/stats") {
    options_.stats = !options_.stats;
    return said(options_.stats ? "Times are shown after each answer." : "Times are not shown any more.");
  }
  if (word == "/temp") return set("temperature", rest);
  if (word == "/seed") return set("seed", rest);
  if (word == "/set") {
    const size_t blank = rest.find(' ');
    if (rest.empty()) return list_fields(), Status{};
    if (blank == std::string::npos) return invalid("/set needs a name and a value: /set temp 0.2");
    return set(rest.substr(0, blank), rest.substr(blank + 1));
  }
  if (word == "/save" || word == "/load") {
    const std::string& file = rest.empty() ? options_.history : rest;
    if (file.empty()) return invalid(word + " needs the name of a file.");
    TRY(word == "/save" ? chat_.save(file) : chat_.load(file));
    return said(fmt::format("{} messages are {} {}.", chat_.n_messages(), word == "/save" ? "in" : "here, from",
                            in_quotes(file)));
  }
  if (word == "/image") return attach(rest);
  if (word == "/regen") {
    if (!chat_.forget_answer()) return invalid("Nothing was asked yet.");
    chat_.next_seed();
    return answer(true);
  }
  if (word == "/edit") return edit(rest, draft);
  if (word != "/help") return no_command(word);
  std::fputs(wrapped(kHelp, columns_of(STDOUT_FILENO)).c_str(), stdout);
  std::fflush(stdout);
  return {};
}

// A word of consent, to a person.
Status ChatSession::said(const std::string& sentence) const {
  if (editor_.is_terminal()) say_dim(sentence);
  return {};
}

Status ChatSession::set(const std::string& name, const std::string& value) {
  TRY(chat_.set(name, value));
  const bool is_out = value == "null" && name != "system";
  return said(is_out ? name + " is as it was." : name + " is " + shown(value, kShown) + ".");
}

void ChatSession::list_fields() const {
  std::string out = fmt::format("seed {}\n", chat_.seed());
  if (!chat_.system().empty()) out += "system " + in_quotes(chat_.system(), kShown) + "\n";
  for (const auto& [name, value] : chat_.fields()) out += name + " " + shown(value.text(), kShown) + "\n";
  if (chat_.fields().empty()) out += "Nothing else is set; the model's own values count, then ibid's.\n";
  std::fputs(harmless(out).c_str(), stdout);
  std::fflush(stdout);
}

Status ChatSession::attach(const std::string& file) {
  if (file.empty()) return chat_.detach(), said("No picture is shown with the next question.");
  if (!chat_.reads_pictures()) return no_pictures();
  ASSIGN_OR_RETURN(Json picture, read_picture_part(file));
  chat_.attach(std::move(picture));
  return said(fmt::format("{} {} shown with the next question.", chat_.n_attached(),
                          chat_.n_attached() == 1 ? "picture is" : "pictures are"));
}

Status ChatSession::edit(const std::string& text, std::string& draft) {
  const std::string old = chat_.take_question();
  if (old.empty()) return invalid("Nothing was asked yet.");
  if (text.empty()) return draft = old, Status{};
  chat_.say(text);
  return answer(true);
}

}  // namespace ibid::cli
