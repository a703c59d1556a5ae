#include "cli/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <string_view>

namespace ibid::cli {

struct LineEditor::State {
  EditLine* edit = nullptr;
  History* lines = nullptr;
  Candidates candidates = nullptr;
  const char* prompt = "";
  bool is_interrupted = false;
};

namespace {

constexpr int kRemembered = 1000;

// The state that the callbacks of libedit have for a client.
template <typename State>
State& state_of(EditLine* edit) {
  void* client = nullptr;
  el_get(edit, EL_CLIENTDATA, &client);
  return *static_cast<State*>(client);
}

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

LineEditor::LineEditor(Candidates candidates) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) return;
  // Letters beyond ASCII are one key each where the locale says so; nothing else of it is wanted.
  setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") setlocale(LC_CTYPE, "C.UTF-8");
  EditLine* edit = el_init("ibid", stdin, stdout, stderr);
  if (edit == nullptr) return;
  state_ = std::make_unique<State>();
  State& s = *state_;
  s.edit = edit;
  s.candidates = candidates;
  s.lines = history_init();
  HistEvent event;
  history(s.lines, &event, H_SETSIZE, kRemembered);
  history(s.lines, &event, H_SETUNIQUE, 1);
  el_set(edit, EL_CLIENTDATA, &s);
  el_set(edit, EL_EDITOR, "emacs");
  el_set(edit, EL_HIST, history, s.lines);
  el_set(
      edit, EL_PROMPT, +[](EditLine* e) { return const_cast<char*>(state_of<State>(e).prompt); });
  // While a line is typed, Ctrl-C and Ctrl-Z are keys: a signal would leave the terminal as it is.
  el_set(edit, EL_SETTY, "-d", "-isig", nullptr);
  el_set(
      edit, EL_ADDFN, "ibid-interrupt", "leave the line", +[](EditLine* e, int) -> unsigned char {
        state_of<State>(e).is_interrupted = true;
        return CC_EOF;
      });
  el_set(
      edit, EL_ADDFN, "ibid-suspend", "stop the process", +[](EditLine* e, int) -> unsigned char {
        el_set(e, EL_PREP_TERM, 0);
        std::raise(SIGTSTP);
        el_set(e, EL_PREP_TERM, 1);
        return CC_REDISPLAY;
      });
  el_set(
      edit, EL_ADDFN, "ibid-complete", "complete the word", +[](EditLine* e, int) -> unsigned char {
        const LineInfo* info = el_line(e);
        const std::string line(info->buffer, info->cursor);
        const std::string word = line.substr(line.find_last_of(' ') + 1);
        std::vector<std::string> found = state_of<State>(e).candidates(line);
        std::erase_if(found, [&](const std::string& c) { return !c.starts_with(word); });
        if (found.empty()) return CC_ERROR;
        size_t n = found.front().size();
        for (const std::string& c : found) n = std::min(n, common_prefix(found.front(), c));
        const std::string rest = found.front().substr(word.size(), n - word.size()) + (found.size() == 1 ? " " : "");
        if (!rest.empty()) return el_insertstr(e, rest.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
        std::fputs("\n", stdout);
        for (const std::string& c : found) std::fprintf(stdout, "%s  ", c.c_str());
        std::fputs("\n", stdout);
        return CC_REDISPLAY;
      });
  el_set(edit, EL_BIND, "^C", "ibid-interrupt", nullptr);
  el_set(edit, EL_BIND, "^Z", "ibid-suspend", nullptr);
  el_set(edit, EL_BIND, "^I", "ibid-complete", nullptr);
  el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
}

LineEditor::~LineEditor() {
  if (!state_) return;
  el_end(state_->edit);
  history_end(state_->lines);
}

Typed LineEditor::read(const char* prompt, std::string& line, const std::string& draft) {
  line.clear();
  if (!state_) return std::getline(std::cin, line) ? Typed::kLine : Typed::kEnd;
  State& s = *state_;
  s.prompt = prompt;
  s.is_interrupted = false;
  el_resize(s.edit);
  if (!draft.empty()) el_push(s.edit, draft.c_str());
  int n = 0;
  const char* typed = el_gets(s.edit, &n);
  if (s.is_interrupted) {
    el_reset(s.edit);
    std::fputs("^C\n", stdout);
    return Typed::kInterrupt;
  }
  if (typed == nullptr || n <= 0) return Typed::kEnd;
  line.assign(typed, static_cast<size_t>(n));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  return Typed::kLine;
}

void LineEditor::remember(const std::string& line) {
  if (!state_ || line.empty()) return;
  HistEvent event;
  history(state_->lines, &event, H_ENTER, line.c_str());
}

}  // namespace ibid::cli
