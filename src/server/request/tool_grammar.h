// The grammar of an answer that must call a tool, as the model's family writes calls; and what may stand before any
// grammar where the model reasons.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sample/grammar/grammar.h"
#include "server/fields/api_request.h"
#include "text/output/answer_parser.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid {

// The format in which such an answer is: the model's own where a grammar can hold it, else the generic one.
std::shared_ptr<const AnswerFormat> required_format(const std::shared_ptr<const AnswerFormat>& own);

// The tools that may be called, each as JSON.
std::vector<std::string> callable_tools(const ApiRequest& api);
// Makes the calls of these tools the grammar's root.
Status read_required_calls(const std::vector<std::string>& tools, const AnswerFormat& format,
                           const Tokenizer& tokenizer, grammar::Grammar& out);

// Whether calls that a model begins by itself are held: one of the tools is strict, and the format has an opening.
bool holds_auto_calls(const ApiRequest& api, const AnswerFormat& format);
// Makes free text the grammar's root in which, after a call's opening, comes a call of one of these tools.
Status read_auto_calls(const std::vector<std::string>& tools, const AnswerFormat& format, const Tokenizer& tokenizer,
                       grammar::Grammar& out);

// Whether reasoning may come before an answer's grammar.
bool may_reason(const AnswerParser::Options& parser);
// Lets it come before the root. `is_open`: the prompt has opened it.
void allow_reasoning(const AnswerFormat& format, bool is_open, const Tokenizer& tokenizer, grammar::Grammar& out);

}  // namespace ibid
