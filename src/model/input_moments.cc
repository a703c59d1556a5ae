#include "model/input_moments.h"

#include <algorithm>
#include <cmath>

#include "model/activation_sums.h"

namespace ibid {

Result<MomentsOf> input_moments(Model& model, Stream& stream, std::span<const TokenId> tokens, int64_t chunk_len,
                                TokenId begin, int layer, int layer_end, std::span<const std::string> names,
                                const std::function<void(uint64_t, uint64_t)>& progress) {
  MomentsOf out;
  Stream own(stream.team());  // its workspace is not that of the pass, which waits meanwhile
  TRY(own.reserve_workspace(InputMoments::workspace_bytes()));
  const Tap tap = [&](std::string_view name, int l, const TensorView& x) {
    if (l < layer || l >= layer_end || x.dtype != DType::kF32 || std::ranges::find(names, name) == names.end()) return;
    auto found = out.find({l, std::string(name)});
    if (found == out.end()) found = out.emplace(std::pair(l, std::string(name)), InputMoments(x.row_len())).first;
    found->second.add(own, x);
  };
  TRY(run_chunks(model, stream, tokens, chunk_len, begin, tap, progress));
  for (auto& [of, moments] : out) {
    moments.finish(own);
    for (int64_t k = 0; k < moments.n_inputs(); ++k) {
      if (std::isfinite(moments.product(k, k))) continue;
      return invalid("the inputs of layer " + std::to_string(of.first) + " (" + of.second + ") are not finite");
    }
  }
  return out;
}

}  // namespace ibid
