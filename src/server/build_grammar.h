// From what a request asks its answer to be of to the grammar at work on it.
#pragma once

#include <memory>

#include "sample/grammar/matcher.h"
#include "server/api_request.h"
#include "server/backend.h"
#include "text/output/answer_parser.h"

namespace ibid {

// Null where the request asks for none. The error's field is the one that asked.
// `parser`: of the answer, if one reads it; may be null.
Result<std::shared_ptr<const grammar::Automaton>> build_grammar(const ApiRequest& api, const Backend& backend,
                                                                const AnswerParser::Options* parser);
std::shared_ptr<grammar::Matcher> make_matcher(std::shared_ptr<const grammar::Automaton> automaton,
                                               const ApiRequest& api, const Backend& backend);

}  // namespace ibid
