// What somebody may have meant who typed another word.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ibid::cli {

// The nearest of `known` by letters that are added, left out, changed or swapped, where it is near enough that it may
// have been meant: a third of the word's letters at most. Empty where none is.
std::string nearest(std::string_view word, std::span<const std::string> known);

}  // namespace ibid::cli
