// Operations on marked text that methods and filters share.
#pragma once

#include "text/jinja/args.h"
#include "text/jinja/unicode.h"

namespace ibid::jinja {

inline constexpr size_t kNotFound = static_cast<size_t>(-1);

size_t find_bytes(std::string_view text, std::string_view what, size_t from = 0);  // linear; kNotFound
size_t rfind_bytes(std::string_view text, std::string_view what);                  // linear; kNotFound

MethodFn find_classifier(std::string_view name);  // isdigit() and its kin; null: none of them

Text change_case(Machine& m, const Text& text, Case to);
Text capitalize(Machine& m, const Text& text);
// Strips from both, the left or the right end; `chars` null: white space.
Text strip(Machine& m, const Text& text, const Text* chars, bool left, bool right);
Text replace(Machine& m, const Text& text, const Text& from, const Text& to, int64_t count);
std::vector<Text> split_lines(Machine& m, const Text& text, bool keep_ends);
// str.join over an iterable; `strict`: items must be strings (the method), else str() of each (the filter).
Value join(Machine& m, const Text& separator, const Value& items, bool strict);
Text pad(Machine& m, const Text& text, int64_t left, int64_t right, const Text& fill);
Text center(Machine& m, const Text& text, int64_t width, const Text& fill);

}  // namespace ibid::jinja
