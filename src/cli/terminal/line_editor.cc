#include "cli/terminal/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cwchar>
#include <iostream>
#include <string_view>
#include <utility>

#include "cli/terminal/grapheme.h"
#include "cli/terminal/line_wrap.h"

namespace ibid::cli {

struct LineEditor::State {
  EditLine* edit = nullptr;
  History* lines = nullptr;
  LineHistory kept{""};
  bool brackets_pastes = false;
  Candidates candidates = nullptr;
  const char* prompt = "";
  bool is_interrupted = false;
  bool is_pasted = false;  // some of the line that is read
};

namespace {

constexpr size_t kMostPasted = 4 << 20;  // characters
constexpr const char* kBracket = "\x1b[?2004h";
constexpr const char* kNoBracket = "\x1b[?2004l";
constexpr std::string_view kPasteBegin = "\x1b[200~", kPasteEnd = "\x1b[201~";
constexpr std::string_view kFence = "\"\"\"";

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

std::wstring_view line_of(const LineInfoW& info) {
  return {info.buffer, static_cast<size_t>(info.lastchar - info.buffer)};
}

// libedit counts a column less or more than the terminal where characters take none of their own: such a line is shown
// again as a whole.
unsigned char shown_again(EditLine* edit, unsigned char otherwise) {
  return has_joined(line_of(*el_wline(edit))) ? CC_REDISPLAY : otherwise;
}

unsigned char move_by(EditLine* edit, int n) {
  if (n == 0) return CC_ERROR;
  el_cursor(edit, n);
  return shown_again(edit, CC_CURSOR);
}

int cluster_before(EditLine* edit) {
  const LineInfoW& info = *el_wline(edit);
  return static_cast<int>(last_cluster(line_of(info).substr(0, static_cast<size_t>(info.cursor - info.buffer))));
}

int cluster_after(EditLine* edit) {
  const LineInfoW& info = *el_wline(edit);
  return static_cast<int>(first_cluster(line_of(info).substr(static_cast<size_t>(info.cursor - info.buffer))));
}

unsigned char erase_before(EditLine* edit) {
  const int n = cluster_before(edit);
  if (n == 0) return CC_ERROR;
  const unsigned char how = shown_again(edit, CC_REFRESH);
  el_deletestr(edit, n);
  return how;
}

unsigned char erase_after(EditLine* edit) {
  const int n = cluster_after(edit);
  if (n == 0) return CC_ERROR;
  const unsigned char how = shown_again(edit, CC_REFRESH);
  el_cursor(edit, n);
  el_deletestr(edit, n);
  return how;
}

// All up to the end of the paste, which `paste` has without control characters and line ends after it. False where it
// is longer than a line may be.
bool read_paste(EditLine* edit, std::wstring& paste) {
  size_t n_matched = 0;  // of its end
  bool is_whole = true, is_pair = false;
  for (wchar_t c = 0; n_matched < kPasteEnd.size() && el_wgetc(edit, &c) == 1;) {
    const auto marks = [&](size_t at) { return c == static_cast<unsigned char>(kPasteEnd[at]); };
    n_matched = marks(n_matched) ? n_matched + 1 : marks(0) ? 1 : 0;
    if (c == L'\n' && std::exchange(is_pair, false)) continue;
    is_pair = c == L'\r';
    if (is_pair) c = L'\n';
    const bool is_control = (c < L' ' && c != L'\n' && c != L'\t') || (c >= 0x7f && c < 0xA0);
    if (is_control || !is_whole) continue;
    is_whole = paste.size() < kMostPasted;
    paste += c;
  }
  if (!is_whole) return false;
  // The mark of the end without its escape, which was left out above.
  if (n_matched == kPasteEnd.size()) paste.resize(paste.size() - (kPasteEnd.size() - 1));
  while (!paste.empty() && paste.back() == L'\n') paste.pop_back();
  return true;
}

unsigned char take_paste(EditLine* edit) {
  std::wstring paste;
  if (!read_paste(edit, paste)) {
    std::fputs("\nerror: More than four million characters were pasted; nothing of it is in the line.\n", stdout);
    return CC_REDISPLAY;
  }
  if (paste.empty()) return CC_NORM;
  return el_winsertstr(edit, paste.c_str()) == 0 ? shown_again(edit, CC_REFRESH) : CC_ERROR;
}

using Key = unsigned char (*)(EditLine*, int);

// Keys that go by what a reader takes for one character.
void bind_clusters(EditLine* edit) {
  const struct {
    const char *name, *help;
    Key key;
    std::vector<const char*> bound;
  } keys[] = {
      {"ibid-erase", "erase the character before", [](EditLine* e, int) { return erase_before(e); }, {"^?", "^H"}},
      {"ibid-delete",
       "erase the character after, or end",
       [](EditLine* e, int) -> unsigned char {
         const LineInfoW& info = *el_wline(e);
         return info.lastchar == info.buffer ? CC_EOF : erase_after(e);
       },
       {"^D"}},
      {"ibid-delete-key", "erase the character after", [](EditLine* e, int) { return erase_after(e); }, {"\\e[3~"}},
      {"ibid-left",
       "a character back",
       [](EditLine* e, int) { return move_by(e, -cluster_before(e)); },
       {"^B", "\\e[D", "\\eOD"}},
      {"ibid-right",
       "a character on",
       [](EditLine* e, int) { return move_by(e, cluster_after(e)); },
       {"^F", "\\e[C", "\\eOC"}},
  };
  for (const auto& k : keys) {
    el_set(edit, EL_ADDFN, k.name, k.help, k.key);
    for (const char* bound : k.bound) el_set(edit, EL_BIND, bound, k.name, nullptr);
  }
}

}  // namespace

LineEditor::LineEditor(Candidates candidates, LineHistory lines) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) return;
  // Letters beyond ASCII are one key each where the locale has them so; nothing else of it is used.
  setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") use_utf8();
  EditLine* edit = el_init("ibid", stdin, stdout, stderr);
  if (edit == nullptr) return;
  state_ = std::make_unique<State>();
  State& s = *state_;
  s.edit = edit;
  s.candidates = candidates;
  s.lines = history_init();
  HistEvent event;
  history(s.lines, &event, H_SETSIZE, static_cast<int>(LineHistory::kMost));
  history(s.lines, &event, H_SETUNIQUE, 1);
  for (const std::string& line : lines.read()) history(s.lines, &event, H_ENTER, line.c_str());
  s.kept = std::move(lines);
  // It inserts characters by shifting those after within their row alone, so that a longer line would lose its second.
  for (const char* capability : {"ic", "IC", "im", "ei"}) el_set(edit, EL_SETTC, capability, "", nullptr);
  el_set(edit, EL_CLIENTDATA, &s);
  el_set(edit, EL_EDITOR, "emacs");
  el_set(edit, EL_HIST, history, s.lines);
  el_set(
      edit, EL_PROMPT, +[](EditLine* e) { return const_cast<char*>(state_of<State>(e).prompt); });
  // While a line is typed, Ctrl-C and Ctrl-Z are keys: a signal would leave the terminal as it is.
  el_set(edit, EL_SETTY, "-d", "-isig", nullptr);
  el_set(
      edit, EL_ADDFN, "ibid-paste", "what is pasted", +[](EditLine* e, int) -> unsigned char {
        state_of<State>(e).is_pasted = true;
        return take_paste(e);
      });
  el_set(edit, EL_BIND, "\\e[200~", "ibid-paste", nullptr);
  el_set(
      edit, EL_ADDFN, "ibid-interrupt", "leave the line", +[](EditLine* e, int) -> unsigned char {
        state_of<State>(e).is_interrupted = true;
        return CC_EOF;
      });
  el_set(
      edit, EL_ADDFN, "ibid-suspend", "stop the process", +[](EditLine* e, int) -> unsigned char {
        const bool brackets = state_of<State>(e).brackets_pastes;
        if (brackets) std::fputs(kNoBracket, stdout);
        std::fflush(stdout);
        el_set(e, EL_PREP_TERM, 0);
        std::raise(SIGTSTP);
        el_set(e, EL_PREP_TERM, 1);
        if (brackets) std::fputs(kBracket, stdout);
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
  bind_clusters(edit);
  const char* term = std::getenv("TERM");
  s.brackets_pastes = term != nullptr && std::string_view(term) != "dumb";
  if (s.brackets_pastes)
    std::fputs(kBracket, stdout);  // all the time: an answer may be running when something is pasted
}

LineEditor::~LineEditor() {
  if (!state_) return;
  if (state_->brackets_pastes) std::fputs(kNoBracket, stdout);
  std::fflush(stdout);
  el_end(state_->edit);
  history_end(state_->lines);
}

Typed LineEditor::read(const char* prompt, std::string& line, const std::string& draft) {
  line.clear();
  if (!state_) return std::getline(std::cin, line) ? Typed::kLine : Typed::kEnd;
  State& s = *state_;
  s.prompt = prompt;
  s.is_interrupted = s.is_pasted = false;
  el_resize(s.edit);
  if (!draft.empty()) el_push(s.edit, std::string(kPasteBegin).append(draft).append(kPasteEnd).c_str());
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

Typed LineEditor::read_question(std::string& text, const std::string& draft) {
  std::string line;
  Typed typed = read("> ", text, draft);
  if (typed != Typed::kLine || (state_ && state_->is_pasted)) return typed;  // a paste is what it is
  if (text.starts_with(kFence)) {
    text.erase(0, kFence.size());
    while (!text.ends_with(kFence)) {
      typed = read("... ", line);
      if (typed == Typed::kInterrupt) return typed;
      if (typed == Typed::kEnd) return is_terminal() ? Typed::kInterrupt : Typed::kLine;
      text.append(text.empty() ? "" : "\n").append(line);
    }
    text.resize(text.size() - kFence.size());
    while (text.ends_with('\n')) text.pop_back();
    return Typed::kLine;
  }
  while (text.ends_with('\\')) {
    text.back() = '\n';
    typed = read("... ", line);
    if (typed == Typed::kInterrupt) return typed;
    if (typed == Typed::kEnd) return is_terminal() ? Typed::kInterrupt : Typed::kLine;
    text += line;
  }
  return Typed::kLine;
}

void LineEditor::remember(const std::string& line) {
  if (!state_ || line.empty()) return;
  HistEvent event;
  history(state_->lines, &event, H_ENTER, line.c_str());
  if (line.front() != ' ') state_->kept.add(line);
}

}  // namespace ibid::cli
