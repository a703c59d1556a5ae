#include "spec/experimental/layer_search.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "spec/gain.h"

namespace ibid {

LayerChoice layer_choice(std::vector<int32_t> skipped, double agreement, const LayerCosts& costs, int32_t max_drafts) {
  const double cost = std::max(0.0, 1 - costs.layer * static_cast<double>(skipped.size()));
  LayerChoice out{.skipped = std::move(skipped), .agreement = agreement, .cost = cost};
  for (int32_t k = 1; k <= max_drafts; ++k) {
    const double rows = k * costs.row;
    const double gain = speedup(agreement, k, cost, 1 + rows);
    if (gain > out.gain) out.n_drafts = k, out.gain = gain;
  }
  return out;
}

const LayerChoice& best_choice(std::span<const LayerChoice> choices) {
  CHECK(!choices.empty());
  return *std::ranges::max_element(choices, {}, &LayerChoice::gain);
}

Result<std::vector<LayerChoice>> search_layers(int32_t n_layers, int32_t most, const LayerCosts& costs,
                                               int32_t max_drafts, const LayerAgreement& agreement) {
  std::vector<LayerChoice> out;
  std::vector<int32_t> skipped;
  const double fewest = std::max(0.0, 1 - costs.layer * (n_layers - 1));
  while (std::ssize(skipped) < std::min(most, n_layers - 1)) {
    double best = -1;
    std::vector<int32_t> with_best;
    for (int32_t l = 0; l < n_layers; ++l) {
      std::vector<int32_t> more = skipped;
      const auto at = std::ranges::lower_bound(more, l);
      if (at != more.end() && *at == l) continue;
      more.insert(at, l);
      ASSIGN_OR_RETURN(const double agrees, agreement(more));
      if (agrees <= best) continue;
      best = agrees;
      with_best = std::move(more);
    }
    skipped = with_best;
    out.push_back(layer_choice(std::move(with_best), best, costs, max_drafts));
    const LayerCosts at_best{.layer = 1 - fewest,
                             .row = costs.row};  // skipping one layer costs as little as keeping one
    if (layer_choice({0}, best, at_best, max_drafts).gain <= best_choice(out).gain) break;
  }
  return out;
}

}  // namespace ibid
