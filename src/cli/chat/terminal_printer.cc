#include "cli/chat/terminal_printer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace ibid::cli {
namespace {

constexpr const char* kBeginDim = "\x1b[2m";
constexpr const char* kEndDim = "\x1b[0m";
constexpr const char* kClearLine = "\r\x1b[K";
constexpr size_t kFenceLen = 3;

void show(const std::string& out) {
  std::fwrite(out.data(), 1, out.size(), stdout);
  std::fflush(stdout);
}

std::string dim(const std::string& text, Shown to) {
  return to == Shown::kTerminal ? kBeginDim + text + kEndDim : text;
}

}  // namespace

bool can_move_cursor() {
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && term != nullptr && std::string_view(term) != "dumb";
}

Shown standard_output() {
  if (isatty(STDOUT_FILENO) == 0) return Shown::kProgram;
  return std::getenv("NO_COLOR") == nullptr && can_move_cursor() ? Shown::kTerminal : Shown::kPlainTerminal;
}

void say_dim(const std::string& sentence) {
  const Shown to = standard_output();
  if (to != Shown::kProgram) show(dim(wrapped(sentence, columns_of(STDOUT_FILENO)), to) + "\n");
}

void TerminalPrinter::part(const AnswerPart& part) {
  std::string out;
  end_progress(out);
  const int width = columns_of(STDOUT_FILENO);
  wrap_.set_width(width);
  markdown_.set_width(width);
  if (part.kind == PartKind::kText) {
    end_reasoning(out);
    if (to_ == Shown::kTerminal) {
      markdown_.push(part.text, out);
    } else if (to_ == Shown::kProgram) {
      out += part.text;
    } else {
      for (const char c : harmless(part.text)) {
        const bool is_fence_line = line_ == "```" || line_ == "~~~";
        wrap_.push({&c, 1}, !is_fence_ && !is_fence_line, out);
        if (c == '\n') {
          is_fence_ ^= is_fence_line;
          line_.clear();
        } else if (line_.size() < kFenceLen) {
          line_ += c;
        }
      }
    }
  } else if (part.kind == PartKind::kReasoning && to_ != Shown::kProgram) {
    if (!std::exchange(is_reasoning_, true) && to_ == Shown::kTerminal) wrap_.push(kBeginDim, true, out);
    wrap_.push(harmless(part.text), true, out);
  }
  show(out);
}

void TerminalPrinter::progress(int32_t n_computed, int32_t n_prompt) {
  if (to_ == Shown::kProgram || !can_move_cursor()) return;
  shows_progress_ = true;
  const std::string counted =
      n_computed > 0 ? fmt::format("{} of {}", n_computed, n_prompt) : fmt::format("{}", n_prompt);
  show(kClearLine + dim("reading " + counted + " tokens \u2026", to_));
}

void TerminalPrinter::end(const std::string& remark) {
  std::string out;
  end_progress(out);
  end_reasoning(out);
  if (to_ == Shown::kTerminal) markdown_.finish(out);
  wrap_.finish(out);
  // A sentence has a line of its own.
  const bool is_word = remark.find(' ') == std::string::npos;
  if (!remark.empty()) out += (is_word ? " " : "\n") + dim(wrapped("[" + remark + "]", columns_of(STDOUT_FILENO)), to_);
  show(out + "\n");
}

void TerminalPrinter::drop() {
  std::string out;
  end_progress(out);
  show(out);
}

void TerminalPrinter::end_progress(std::string& out) {
  if (std::exchange(shows_progress_, false)) out += kClearLine;
}

void TerminalPrinter::end_reasoning(std::string& out) {
  if (!std::exchange(is_reasoning_, false)) return;
  wrap_.push(to_ == Shown::kTerminal ? std::string(kEndDim) + "\n\n" : "\n\n", true, out);
}

}  // namespace ibid::cli
