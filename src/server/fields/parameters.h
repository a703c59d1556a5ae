// The table of request fields: name, type, range, default, meaning, and where the value goes. The parser, its error
// texts, openapi.json and docs/users/api.md all come from it, so that they cannot disagree.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "server/fields/api_request.h"

namespace ibid {

enum class FieldType : uint8_t { kInteger, kNumber, kBoolean, kString, kStrings, kTokenIds, kOther };

// Reads a value that the type alone does not describe. `limits` are the operator's.
using ReadField = Status (*)(ApiRequest&, const Json&, const ApiLimits&);

using Target = std::variant<float SamplingParams::*, int32_t SamplingParams::*, bool SamplingParams::*,
                            int32_t ApiRequest::*, bool ApiRequest::*, std::string ApiRequest::*,
                            std::vector<std::string> ApiRequest::*, std::vector<TokenId> ApiRequest::*, ReadField>;

inline constexpr unsigned kChatOnly = 1, kCompletionsOnly = 2, kBoth = 3;

struct Parameter {
  const char* name;
  unsigned endpoints;
  FieldType type;
  double min, max;           // numbers, and the length of strings and lists; equal: no range
  bool above_min;            // the range is (min, max]
  const char* default_text;  // as JSON
  const char* origin;        // whose name it is: OpenAI, vLLM, llama.cpp, ibid
  const char* field;         // what it sets in ibid, "" where it is no single field
  const char* schema;        // kOther: JSON schema, with @max_n and the like for an operator's bounds; else nullptr
  const char* meaning;
  Target target;
  const char* alias_of = nullptr;
};

// A field that we know and do not serve: a 400 that names it, unless its value is null or one of `allowed`.
struct UnservedField {
  const char* name;
  unsigned endpoints;
  const char* allowed;  // a JSON array of values that ask for nothing
  const char* instead;  // what to use
};

// A field that we know and that may have any value, because none changes an answer.
struct IgnoredField {
  const char* name;
  unsigned endpoints;
  const char* why;
};

std::span<const Parameter> parameters();
// By its name or an alias, of those that both endpoints have; null where there is none.
const Parameter* find_parameter(std::string_view name);
// The name of the field of which this is a second name, or its own.
inline std::string_view own_name(const Parameter& p) { return p.alias_of != nullptr ? p.alias_of : p.name; }
// True of what changes how tokens are chosen.
inline bool samples(const Parameter& p) { return std::string_view(p.field).starts_with("SamplingParams::"); }
std::span<const IgnoredField> ignored_fields();
std::span<const UnservedField> unserved_fields();

// A bound as errors and the documentation spell it: the largest int32_t in digits.
std::string number_text(double value);

// "a number from 0 to 2", as errors and the documentation spell it.
std::string describe_type(const Parameter& parameter);

// Reads one field into the request.
Status read_parameter(const Parameter& parameter, const Json& value, const ApiLimits& limits, ApiRequest& request);

// The tables of docs/users/api.md, as Markdown.
std::string parameters_markdown();

}  // namespace ibid
