// FinishReason: why a sequence ended. Exactly one per request (docs/design.md section 5, law 9).
#pragma once

#include <cstdint>

namespace ibid {

enum class FinishReason : uint8_t {
  kNone,       // still running
  kEos,        // the model ended its answer: one of the vocabulary's end-of-generation ids
  kStop,       // a stop string or stop id of the request; which one is the stop reason beside it
  kLength,     // max_tokens or the context limit
  kGrammar,    // the grammar accepts and allows nothing more (a JSON value that has been closed)
  kTool,       // the model asked for a tool to be called
  kSafety,     // a safety rule ended the answer
  kCancelled,  // the client went away or cancelled
  kError,      // this request failed after admission; the error beside it states how
};

// The string of OpenAI's `finish_reason` field. "cancelled" and "error" are ours (OpenAI has no such end); an empty
// string means that the field is null.
constexpr const char* openai_finish_reason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kEos:
    case FinishReason::kStop:
    case FinishReason::kGrammar:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kTool:
      return "tool_calls";
    case FinishReason::kSafety:
      return "content_filter";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

// ibid's name of each reason, for traces and metrics.
constexpr const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kEos:
      return "eos";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kGrammar:
      return "grammar";
    case FinishReason::kTool:
      return "tool";
    case FinishReason::kSafety:
      return "safety";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

}  // namespace ibid
