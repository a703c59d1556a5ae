// Which tokens end an answer: the one rule for every container.
#pragma once

#include <span>
#include <vector>

#include "text/tokenizer/vocabulary.h"

namespace ibid {

// Ascending, once each: eos; the ids that a file's own keys name as ends (`named`, in the vocabulary); and every token
// spelled like an end of turn or of text (<|im_end|>, <|eot_id|>, <end_of_turn>, <|endoftext|> ...), or like what a
// code model sets between files and repositories. Spellings that are also plain text elsewhere (</s>) count where the
// token is a control token.
std::vector<TokenId> find_end_of_generation(const Vocabulary& vocabulary, std::span<const TokenId> named = {});

}  // namespace ibid
