// An EAGLE head over a tiny model as a proposer, which reads sequences as in a step, and the same head alone, which
// reads each whole sequence at once.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "model/testing/loaded_model.h"
#include "sample/sampler.h"
#include "spec/heads/eagle_proposer.h"
#include "tiny_eagle.h"

namespace ibid::testing {

struct EagleTexts {
  static constexpr int32_t kVocab = 96, kContext = 160, kStep = 64;

  enum class Kind { kEagle1, kEagle3, kMtp };

  explicit EagleTexts(Kind kind, int32_t n_texts = 2, int32_t n_blocks = 0,
                      const EagleOptions& options = {.vocab_size = kVocab, .always = true},
                      const Clock& clock = steady_clock()) {
    tiny = {.width = m.model->config().width, .vocab_size = kVocab, .is_third = kind == Kind::kEagle3};
    for (int64_t i = 0; tiny.is_third && i < kVocab; i += 2) tiny.ids.push_back(i);
    const std::shared_ptr<const ModelFile> file =
        kind == Kind::kMtp ? tiny_mtp_file(m.model->config(), true) : tiny_eagle_file(tiny);
    EagleSizes sizes = EagleProposer::sizes(n_texts, kContext, kStep);
    sizes.kv_dtype = DType::kF32;
    if (n_blocks > 0) sizes.n_blocks = n_blocks;
    proposer = std::make_unique<EagleProposer>(EagleHead::load(file, *m.model, *m.stream, sizes).value(), *m.stream,
                                               options, clock);
    sizes = EagleProposer::sizes(8, kContext, kStep);
    sizes.kv_dtype = DType::kF32;
    reference = EagleHead::load(file, *m.model, *m.stream, sizes).value();
  }

  // The target's hidden state of the token at `position` of this sequence, as seen by a head.
  static float feature(std::span<const TokenId> text, int32_t position, int64_t column) {
    uint64_t hash = 1469598103934665603U + static_cast<uint64_t>(column);
    for (int32_t i = 0; i <= position; ++i)
      hash = (hash ^ static_cast<uint64_t>(raw(text[static_cast<size_t>(i)]))) * 1099511628211U;
    return static_cast<float>(hash >> 40) / float{1 << 23} - 1;
  }
  // A step that computed the tokens [first, first + n) of this sequence, in rows from `row` on.
  void tell(int64_t sequence, std::span<const TokenId> text, int32_t first, int32_t n, int32_t row = 0,
            int32_t n_running = 1, bool is_pinned = false) {
    std::vector<int32_t> rows;
    const HiddenStates& taps = *proposer->taps();
    const int64_t C = tiny.width;
    for (int32_t i = 0; i < n; ++i) {
      rows.push_back(row + i);
      for (size_t tap = 0; tap < taps.out.size(); ++tap) {
        for (int64_t c = 0; c < C; ++c)
          taps.out[tap].row_as<float>(row + i)[c] = feature(text, first + i, static_cast<int64_t>(tap) * C + c);
      }
    }
    proposer->read({.sequence = sequence,
                    .first = first,
                    .rows = rows,
                    .tokens = text,
                    .n_running = n_running,
                    .is_pinned = is_pinned});
  }
  // Logits [V] of the head alone, from the sequence's pairs from `begin` on and these drafts; -infinity for tokens
  // without an output.
  std::vector<float> row_after(std::span<const TokenId> text, std::span<const TokenId> drafts, int32_t begin = 0) {
    EagleHead& head = *reference;
    PairsOfOne pairs(head);
    const auto n_pairs = static_cast<int32_t>(text.size()) - 1 - begin;
    for (int32_t i = 0; i < n_pairs; ++i) {
      for (int64_t c = 0; c < head.feature_len(); ++c)
        head.features().row_as<float>(i)[c] = feature(text, begin + i, c);
    }
    head.fuse(n_pairs);
    const int32_t last = n_pairs - 1, first = 0;
    EagleHead::PassResult said = pairs.run(text.last(static_cast<size_t>(n_pairs)), {&last, 1});
    for (const TokenId& draft : drafts) {
      head.load_states({&first, 1});
      said = pairs.run({&draft, 1}, {&first, 1});
    }
    std::vector<float> out(kVocab, -INFINITY);
    for (size_t i = 0; i < said.logits.size(); ++i)
      out[head.ids().empty() ? i : static_cast<size_t>(raw(head.ids()[i]))] = said.logits[i];
    return out;
  }

  LoadedModel m{TinyModelOptions{}};
  TinyEagle tiny;
  std::unique_ptr<EagleProposer> proposer;
  std::unique_ptr<EagleHead> reference;
  std::shared_ptr<const Sampler> greedy = Sampler::compile({.temperature = 0}, kVocab, {}, 1).value();
};

}  // namespace ibid::testing
