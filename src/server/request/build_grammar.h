// From what a request asks its answer to be of to the grammar at work on it.
#pragma once

#include <memory>

#include "sample/grammar/grammars.h"
#include "server/fields/api_request.h"
#include "server/request/backend.h"
#include "text/output/answer_parser.h"

namespace ibid {

// Whether build_grammar() has one to compile, as the request's fields show without a look at its prompt: true for each
// request that has, and false for nearly all others. Costs no more than a look at each of the request's tools.
bool needs_grammar(const ApiRequest& api, const AnswerFormat& format);

// Null where the request asks for none. The error's field is the one that asked.
// `parser`: of the answer, if one reads it; may be null.
Result<std::shared_ptr<grammar::Compiled>> build_grammar(const ApiRequest& api, const Backend& backend,
                                                         const std::string& tenant,
                                                         const AnswerParser::Options* parser);
std::shared_ptr<grammar::Matcher> make_matcher(const std::shared_ptr<grammar::Compiled>& compiled,
                                               const ApiRequest& api, const Backend& backend);

}  // namespace ibid
