// From what a request asks its answer to be of to the grammar at work on it.
#pragma once

#include <memory>

#include "sample/grammar/grammars.h"
#include "server/fields/api_request.h"
#include "server/request/backend.h"
#include "text/output/answer_parser.h"

namespace ibid {

// Null where the request asks for none. The error's field is the one that asked.
// `parser`: of the answer, if one reads it; may be null.
Result<std::shared_ptr<grammar::Compiled>> build_grammar(const ApiRequest& api, const Backend& backend,
                                                         const std::string& tenant,
                                                         const AnswerParser::Options* parser);
std::shared_ptr<grammar::Matcher> make_matcher(const std::shared_ptr<grammar::Compiled>& compiled,
                                               const ApiRequest& api, const Backend& backend);

}  // namespace ibid
