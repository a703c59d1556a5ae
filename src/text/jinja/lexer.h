// The lexer of chat templates: Jinja's rules with trim_blocks and lstrip_blocks on, as transformers sets them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ibid::jinja {

enum class Tok : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEof
};

struct Token {
  Tok type = Tok::kEof;
  uint32_t at = 0;   // byte of the source
  std::string text;  // names and operators as written, data and strings ready
  int64_t integer = 0;
  double real = 0;
  bool is(Tok t, std::string_view s) const { return type == t && text == s; }
  bool is_name(std::string_view s) const { return is(Tok::kName, s); }
  bool is_op(std::string_view s) const { return is(Tok::kOperator, s); }
};

// Line ends become \n, and one at the very end goes (Jinja's keep_trailing_newline=False).
std::string normalize_source(std::string_view source);

// `source` is normalised and valid UTF-8. The last token is kEof.
Result<std::vector<Token>> tokenize(std::string_view source);

// "line 3, column 14"; columns count code points from 1.
std::string place_in(std::string_view source, size_t at);

}  // namespace ibid::jinja
