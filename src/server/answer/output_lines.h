// Outputs of one choice as lines of JSON: how a replica that was asked for `resume.outputs` hands the rest of an answer
// to the one that has its client (docs/users/replicas.md). A line has new tokens and the text that is certain after
// them; the last one has how the answer ended. Numbers have all of their digits, so that the reader has the same
// floats.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "engine/state/request.h"
#include "server/answer/answer_printer.h"

namespace ibid {

std::unique_ptr<AnswerPrinter> make_output_printer();

struct OutputLineLimits {
  int32_t vocab_size = 0;
  int32_t n_tokens = 0;  // of a line
  int32_t n_top = 0;     // candidates of a token
};

constexpr size_t kMaxOutputLine = 8 << 20;  // bytes

// An output whose request, usage of the prompt and timing are the reader's to fill in. `line` is from outside. Errors,
// kInvalid: it is no such line or beyond the limits. kUnavailable: it has the end of an answer that was ended there
// from outside, with no bytes of its own: an error, or cancelled.
Result<Output> read_output_line(std::string_view line, const OutputLineLimits& limits);

}  // namespace ibid
