// What products read over a text, layer by layer: a model runs, and the moments of each product's inputs are summed.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "base/ids.h"
#include "base/result.h"
#include "model/group_quantise.h"
#include "model/model.h"

namespace ibid {

// By layer and intermediate (input_of, model/activation_sums.h).
using MomentsOf = std::map<std::pair<int, std::string>, InputMoments>;

// Runs the text as sum_activations does and adds the rows of the intermediates of layers [layer, layer_end) that
// `names` has. The bits depend on the text, chunk_len and the model alone. Inputs of experts are not among them. The
// model's tap is used. Errors: fewer than two tokens, a chunk longer than the context, a number that is not finite.
Result<MomentsOf> input_moments(Model& model, Stream& stream, std::span<const TokenId> tokens, int64_t chunk_len,
                                TokenId begin, int layer, int layer_end, std::span<const std::string> names,
                                const std::function<void(uint64_t, uint64_t)>& progress = {});

}  // namespace ibid
