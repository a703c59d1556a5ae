// Tools of a request: which may be called, and how they are described to a model whose template knows none.
#pragma once

#include <memory>
#include <vector>

#include "server/fields/api_request.h"
#include "text/output/answer_parser.h"

namespace ibid {

// What a parser of the answer has to know of the tools that may be called; null: none may.
std::shared_ptr<const std::vector<DeclaredTool>> declared_tools(const ApiRequest& api);

// A tool's function: its name, and the schema of its arguments (an object).
const std::string& tool_name(const Json& tool);
Json tool_schema(const Json& tool);
bool is_strict_tool(const Json& tool);
bool may_be_called(const ApiRequest& api, const std::string& name);

// The conversation for a template that knows no tools: they stand in the system's message, calls and results in texts.
Json with_generic_tools(const Json& messages, const Json& tools);

// The functions of `tools` (an array, or null) as a text, for templates that want one: JSON over lines that are
// indented by four, as Firefunction's users make it; empty where there are none.
std::string functions_as_text(const Json& tools);

}  // namespace ibid
