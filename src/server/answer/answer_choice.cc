#include "server/answer/answer_choice.h"

#include <algorithm>

namespace ibid {

bool AnswerChoice::asks_for_tools() const {
  const bool has_ended = reason == FinishReason::kEos || reason == FinishReason::kStop ||
                         reason == FinishReason::kGrammar || reason == FinishReason::kTool;
  return has_ended && parser && parser->n_calls() > 0 && parser->are_calls_whole();
}

std::string AnswerChoice::text_of(AnswerPart::Kind kind) const {
  std::string text;
  for (const AnswerPart& part : parts) {
    if (part.kind == kind) text += part.text;
  }
  return text;
}

bool AnswerChoice::has(AnswerPart::Kind kind) const {
  return std::ranges::find(parts, kind, &AnswerPart::kind) != parts.end();
}

std::vector<AnswerCall> calls_of(const AnswerChoice& choice) {
  std::vector<AnswerCall> calls;
  for (const AnswerPart& part : choice.parts) {
    if (part.kind != AnswerPart::Kind::kCall) continue;
    if (part.begins) calls.push_back({part.call, part.name, part.id, "", false});
    if (calls.empty()) continue;
    calls.back().arguments += part.text;
    calls.back().is_whole = calls.back().is_whole || part.ends;
  }
  return calls;
}

}  // namespace ibid
