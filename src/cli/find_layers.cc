// ibid spec find-layers: which layers a model can do without when it drafts for itself
// (spec/experimental/layer_search.h), by how often it then predicts what it predicts with them: over a text, each token
// after the text's own ones, drawn with the same noise. The same text, costs and temperature find the same layers;
// costs that are not given are measured.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/caught.h"
#include "cli/options/flag_values.h"
#include "cli/options/options.h"
#include "cli/options/text_file.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/progress.h"
#include "host/loading.h"
#include "model/one_sequence.h"
#include "sample/sampler.h"
#include "spec/experimental/layer_search.h"

namespace ibid::cli {
namespace {

constexpr int32_t kStep = 64, kTimings = 40, kBefore = 64, kRowsMore = 4;

class Finder {
 public:
  Finder(host::Loaded& loaded, std::vector<TokenId> tokens, std::shared_ptr<const Sampler> sampler)
      : loaded_(loaded), tokens_(std::move(tokens)), sampler_(std::move(sampler)) {}

  Status read_whole() {
    ASSIGN_OR_RETURN(whole_, drawn(*loaded_.model));
    return {};
  }
  Result<double> agreement(std::span<const int32_t> skipped) {
    ASSIGN_OR_RETURN(const auto part, without(skipped));
    ASSIGN_OR_RETURN(const std::vector<TokenId> said, drawn(*part));
    size_t n_same = 0;
    for (size_t i = 0; i < said.size(); ++i) n_same += said[i] == whole_[i];
    return static_cast<double>(n_same) / static_cast<double>(said.size());
  }
  // What a layer and a row take here.
  Result<LayerCosts> measure() {
    const int64_t L = loaded_.model->config().n_layers;
    std::vector<int32_t> half(static_cast<size_t>(L / 2));
    std::iota(half.begin(), half.end(), 1);
    const double one = seconds_of(*loaded_.model, 1), more = seconds_of(*loaded_.model, 1 + kRowsMore);
    ASSIGN_OR_RETURN(const auto part, without(half));
    const double fewer = seconds_of(*part, 1);
    return LayerCosts{
        .layer = std::clamp((one - fewer) / one / static_cast<double>(half.size()), 0.0, 1 / static_cast<double>(L)),
        .row = std::max(0.0, (more - one) / one / kRowsMore)};
  }

 private:
  Result<std::unique_ptr<Model>> without(std::span<const int32_t> skipped) {
    return model_without(*loaded_.model, skipped, loaded_.model->options(), *loaded_.stream);
  }
  // After each token of the text.
  Result<std::vector<TokenId>> drawn(Model& model) {
    std::vector<TokenId> out;
    Status status;
    OneSequence sequence(model, *loaded_.stream,
                         {.kv_dtype = loaded_.kv_dtype, .capacity = static_cast<int64_t>(tokens_.size())});
    const auto V = static_cast<size_t>(model.config().vocab_size);
    sequence.append(tokens_, [&](int64_t first, const TensorView& rows) {
      for (int64_t i = 0; i < rows.dim[0] && status.ok(); ++i) {
        SamplerState state = sampler_->initial_state();
        const SampleHistory history = {.prompt = std::span(tokens_).first(static_cast<size_t>(first + i + 1)),
                                       .answer = {}};
        const auto token = sampler_->sample({rows.row_as<const float>(i), V}, history, state, scratch_);
        if (!token) status = token.error();
        if (token) out.push_back(token->chosen.token);
      }
    });
    TRY(status);
    return out;
  }
  // The quickest of several passes of n rows: whatever else the machine does only adds to them.
  double seconds_of(Model& model, int32_t n) {
    const auto n_before = static_cast<int32_t>(std::min<size_t>(kBefore, tokens_.size() - static_cast<size_t>(n)));
    OneSequence sequence(model, *loaded_.stream, {.kv_dtype = loaded_.kv_dtype, .capacity = n_before + n});
    const auto tokens = std::span<const TokenId>(tokens_);
    sequence.append(tokens.first(static_cast<size_t>(n_before)), {});
    double best = std::numeric_limits<double>::infinity();
    for (int32_t i = 0; i < kTimings; ++i) {
      sequence.truncate(n_before);
      const double begin = steady_clock().now();
      sequence.append(tokens.subspan(static_cast<size_t>(n_before), static_cast<size_t>(n)),
                      [](int64_t, const TensorView&) {});
      best = std::min(best, steady_clock().now() - begin);
    }
    return best;
  }

  host::Loaded& loaded_;
  std::vector<TokenId> tokens_;
  std::shared_ptr<const Sampler> sampler_;
  SamplerScratch scratch_;
  std::vector<TokenId> whole_;  // what the whole model predicts
};

Result<LayerCosts> costs_of(Finder& finder, const FindLayersOptions& options) {
  LayerCosts costs;
  if (options.layer_cost < 0 || options.row_cost < 0) {
    ASSIGN_OR_RETURN(costs, finder.measure());
  }
  if (options.layer_cost >= 0) costs.layer = options.layer_cost;
  if (options.row_cost >= 0) costs.row = options.row_cost;
  // Rounded as they are printed, so that passing the printed costs searches alike.
  for (double* cost : {&costs.layer, &costs.row}) *cost = std::round(*cost * 1e4) / 1e4;
  return costs;
}

void print(const std::vector<LayerChoice>& found, const LayerCosts& costs) {
  fmt::print("a layer takes {:.4f} of a step, a further row {:.4f} (--layer-cost {:.4f} --row-cost {:.4f})\n",
             costs.layer, costs.row, costs.layer, costs.row);
  fmt::print("{:>5}  {:>6}  {:>5}  {:>5}  layers\n", "agree", "a draft", "a step", "times");
  for (const LayerChoice& c : found) {
    fmt::print("{:>5.3f}  {:>7.3f}  {:>6}  {:>5.2f}  {}\n", c.agreement, c.cost, c.n_drafts, c.gain,
               layers_text(c.skipped));
  }
  const LayerChoice& best = best_choice(found);
  if (best.gain > 1) {
    fmt::print("--spec skip:{} may be {:.2f} times as fast as no drafts\n", layers_text(best.skipped), best.gain);
  } else {
    fmt::print("none pays; the best is skip:{}, {:.2f} times as fast as no drafts\n", layers_text(best.skipped),
               best.gain);
  }
}

Status find(const FindLayersOptions& options) {
  ASSIGN_OR_RETURN(const std::string text, text_of_file(options.file));
  ASSIGN_OR_RETURN(host::Loaded loaded,
                   host::load(options.model, {.step_tokens = kStep, .max_sequences = 1}, {}, terminal_progress()));
  std::vector<TokenId> tokens = loaded.tokenizer->encode(text, {.add_special = true});
  tokens.resize(
      std::min({tokens.size(), static_cast<size_t>(options.n_tokens), static_cast<size_t>(loaded.context_len)}));
  const auto n_layers = static_cast<int32_t>(loaded.model->config().n_layers);
  if (tokens.size() < 16) {
    return invalid("the text has " + std::to_string(tokens.size()) +
                       " tokens within the context; expected 16 at least, and better hundreds",
                   "--text");
  }
  if (n_layers < 2) return unsupported("the model has one layer, which it cannot do without", "MODEL");
  SamplingParams params;
  params.temperature = options.temperature;
  ASSIGN_OR_RETURN(auto sampler,
                   Sampler::compile(params, static_cast<int32_t>(loaded.model->config().vocab_size), {}, 0));
  Finder finder(loaded, std::move(tokens), std::move(sampler));
  TRY(finder.read_whole());
  ASSIGN_OR_RETURN(const LayerCosts costs, costs_of(finder, options));
  Progress progress("searching");
  const int32_t most = options.most > 0 ? std::min(options.most, n_layers - 1) : n_layers - 1;
  uint64_t n_asked = 0;
  ASSIGN_OR_RETURN(const auto found, search_layers(n_layers, most, costs, options.max_drafts, [&](auto skipped) {
                     progress.update(++n_asked, static_cast<uint64_t>(most * n_layers));
                     return finder.agreement(skipped);
                   }));
  progress.update(1, 1);
  print(found, costs);
  return {};
}

}  // namespace

int find_layers(const FindLayersOptions& options) {
  const Status found = caught([&] { return find(options); });
  return found.ok() ? kOk : fail(found.error());
}

}  // namespace ibid::cli
