// Which tokens end an answer, by the spellings that the field uses.
#pragma once

#include <vector>

#include "text/vocabulary.h"

namespace ibid {

// eos and every token spelled like an end of turn or of text, ascending, once each.
std::vector<TokenId> find_end_of_generation(const Vocabulary& vocabulary);

}  // namespace ibid
