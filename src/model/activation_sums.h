// What an importance matrix is made of: a model runs over a text, and the squares of each product's inputs are summed.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "format/importance.h"
#include "model/model.h"

namespace ibid {

// The intermediate that a layer's product reads, by its name in GGUF without layer and ending ("ffn_down": "gated");
// empty: it is not known. docs/developers/adding_a_model.md names intermediates.
std::string_view input_of(std::string_view product);

// Runs the text in chunks as sum_activations does, with this tap, which is taken away at the end. Errors as there.
Status run_chunks(Model& model, Stream& stream, std::span<const TokenId> tokens, int64_t chunk_len, TokenId begin,
                  const Tap& tap, const std::function<void(uint64_t, uint64_t)>& progress = {});

// Runs the text in chunks of `chunk_len` tokens, each a sequence of its own that begins with `begin` where that is a
// token (in the place of its first), and gives the sums under GGUF's names. An input's squares are added in double in
// the order of the tokens and rounded to float once at the end, so the bits depend on text, chunk_len and model alone,
// not on threads or steps. Of a layer with experts each expert's sums are of the tokens that use it. With `with_output`
// that of output.weight too. Errors: fewer than two tokens, a chunk longer than the context. The model's tap is used.
// progress(done, all) in tokens.
Result<Importance> sum_activations(Model& model, Stream& stream, std::span<const TokenId> tokens, int64_t chunk_len,
                                   TokenId begin, bool with_output,
                                   const std::function<void(uint64_t, uint64_t)>& progress = {});

}  // namespace ibid
