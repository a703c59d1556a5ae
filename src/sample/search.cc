#include "sample/search.h"

#include <cmath>
#include <string>

#include "sample/beam_search.h"
#include "sample/contrastive_search.h"

namespace ibid {
namespace {

Status outside(const char* field, const std::string& value, const std::string& expected) {
  return invalid(std::string(field) + " is " + value + "; expected " + expected + ".", field);
}

}  // namespace

Status validate(const SearchOptions& o) {
  const auto within = [](float x, float from, float to) { return from <= x && x <= to; };
  if (o.kind == SearchKind::kNone) return {};
  if (o.kind == SearchKind::kContrastive) {
    if (o.width < 2 || o.width > kMaxContrastive)
      return outside("top_k", std::to_string(o.width), "2 to " + std::to_string(kMaxContrastive) + " candidates");
    if (!within(o.alpha, 0, 1)) return outside("penalty_alpha", std::to_string(o.alpha), "0 to 1");
    return {};
  }
  if (o.width < 1 || o.width > kMaxBeams)
    return outside("num_beams", std::to_string(o.width), "1 to " + std::to_string(kMaxBeams));
  if (!within(o.length_penalty, -10, 10))
    return outside("length_penalty", std::to_string(o.length_penalty), "-10 to 10");
  if (o.n_groups < 1 || o.width % o.n_groups != 0)
    return outside("num_beam_groups", std::to_string(o.n_groups), "a number that divides num_beams");
  if (!within(o.diversity_penalty, 0, 100))
    return outside("diversity_penalty", std::to_string(o.diversity_penalty), "0 to 100");
  if (o.diversity_penalty != 0 && o.n_groups == 1)
    return invalid("diversity_penalty needs groups of beams; set num_beam_groups to 2 or more.", "diversity_penalty");
  if (o.scores_whole && o.n_groups > 1)
    return invalid("use_beam_search does not support groups of beams; use num_beams.", "num_beam_groups");
  return {};
}

std::unique_ptr<Search> make_search(const SearchOptions& options, int32_t prompt_len, int32_t max_tokens,
                                    int32_t n_ends) {
  if (options.kind == SearchKind::kContrastive) return std::make_unique<ContrastiveSearch>(options, max_tokens);
  return std::make_unique<BeamSearch>(options, prompt_len, max_tokens, n_ends);
}

}  // namespace ibid
