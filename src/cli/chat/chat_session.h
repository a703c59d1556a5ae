// ChatSession: a conversation of `ibid run` with a person, or one question: what is typed, and what is shown.
#pragma once

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/chat/chat.h"
#include "cli/chat/terminal_printer.h"
#include "cli/options/options.h"
#include "cli/terminal/line_editor.h"

namespace ibid::cli {

// What the session needs to know of the model besides what its backend reports.
struct ModelFacts {
  int32_t context_len = 0;
  int64_t trained_len = 0;  // that it promises
  // ", --ctx gives up to 8192": of a context that may be larger; else empty.
  std::string more() const;
};

class ChatSession {
 public:
  // `interrupted` becomes other than 0 where what runs is to stop; it is put back before each question.
  ChatSession(Chat& chat, LineEditor& editor, const RunOptions& options, ModelFacts model,
              volatile std::sig_atomic_t& interrupted)
      : chat_(chat), editor_(editor), options_(options), model_(model), interrupted_(interrupted) {}

  // Once, without a person: calls are shown and not answered.
  Status ask(const std::string& text);
  // The same of a text that is continued.
  Status complete(const std::string& text);
  // Until the person leaves.
  void converse();

 private:
  Status explained(const Status& status, bool is_chat) const;
  void show_end(const Answer& a, TerminalPrinter& printer) const;
  std::string remark(const Answer& a) const;
  Status answer(bool answers_calls);
  bool answer_calls(const std::vector<AnswerCall>& calls);
  Status command(const std::string& line, std::string& draft);
  Status said(const std::string& sentence) const;
  Status set(const std::string& name, const std::string& value);
  void list_fields() const;
  Status attach(const std::string& file);
  Status edit(const std::string& text, std::string& draft);

  Chat& chat_;
  LineEditor& editor_;
  RunOptions options_;
  ModelFacts model_;
  volatile std::sig_atomic_t& interrupted_;
};

// Why a picture cannot be shown to a model without a tower.
Error no_pictures();
// What the last word of `line` may become.
std::vector<std::string> chat_candidates(const std::string& line);

}  // namespace ibid::cli
