// AnswerStops: the stop strings of one growing answer. In an answer with a model's markup they are searched in its text
// only: reasoning and calls are not text, and a stop that occurs there has no effect; a stop never spans them. Without
// markup all of the answer is text. The bytes that pass are the answer's as the model wrote it, up to the stop.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/output/answer_parser.h"
#include "text/output/stop_matcher.h"

namespace ibid {

// How an answer's text is separated from the rest of it.
struct AnswerMarkup {
  AnswerParser::Options parser;
};

class AnswerStops {
 public:
  // `markup` may be null.
  AnswerStops(std::shared_ptr<const StopSet> set, std::shared_ptr<const AnswerMarkup> markup);

  // Takes the next piece and appends to `out` what may be sent. Returns the index of the stop string that ends the
  // answer here; then `out` has all before it (and the stop itself where the set includes it), and nothing more is
  // taken.
  std::optional<int> push(std::string_view text, std::string& out);
  // The same for a piece in which no stop counts.
  void pass(std::string_view text, std::string& out);
  // The answer ended for another reason; what was held back may still contain a stop.
  std::optional<int> finish(std::string& out);

 private:
  std::optional<int> match(std::string& out);
  void release(size_t end, std::string& out);

  std::shared_ptr<const StopSet> set_;
  StopMatcher matcher_;
  std::unique_ptr<AnswerParser> parser_;  // null: all is text
  std::vector<TextSpan> spans_;
  std::vector<AnswerPart> parts_;  // unused
  std::string held_;               // not sent yet
  size_t held_at_ = 0;             // where it begins, in bytes of the answer
  size_t matched_ = 0;             // where the matcher goes on
  size_t unread_ = 0;              // bytes in which no stop counts
  bool is_stopped_ = false;
};

}  // namespace ibid
