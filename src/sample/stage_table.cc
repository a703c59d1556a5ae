#include "sample/stage_table.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sample/stages.h"

namespace ibid {
namespace {

using Params = const SamplingParams&;
using Input = const StageInput&;
using Row = std::span<float>;
using stages::Support;

bool bans_the_end(Input in) {
  return in.params.ignore_eos || static_cast<int32_t>(in.history.answer.size()) < in.params.min_tokens;
}

constexpr Stage kStages[] = {
    // Penalties.
    {.name = "repetition_penalty",
     .is_asked = [](Params p) { return p.repetition_penalty != 1.0f; },
     .change_row =
         [](Row row, Input in) {
           stages::repetition_penalty(row, in.history, in.params.repetition_penalty, in.params.penalty_last_n,
                                      in.scratch);
         }},
    {.name = "presence_frequency_penalty",
     .is_asked = [](Params p) { return p.presence_penalty != 0 || p.frequency_penalty != 0; },
     .change_row =
         [](Row row, Input in) {
           stages::presence_frequency_penalty(row, in.history, in.params.presence_penalty, in.params.frequency_penalty,
                                              in.scratch);
         }},
    {.name = "dry",
     .is_asked = [](Params p) { return p.dry_multiplier > 0; },
     .change_row = [](Row row, Input in) { stages::dry_penalty(row, in.history, in.params, in.scratch); }},

    // Biases, then hard masks.
    {.name = "logit_bias",
     .is_asked = [](Params p) { return !p.logit_bias.empty(); },
     .change_row = [](Row row, Input in) { stages::logit_bias(row, in.params); }},
    {.name = "banned",
     .is_asked = [](Params p) { return !p.banned.empty(); },
     .change_row = [](Row row, Input in) { stages::ban_tokens(row, in.params.banned); }},
    {.name = "banned_sequences",
     .is_asked = [](Params p) { return !p.banned_sequences.empty(); },
     .change_row = [](Row row, Input in) { stages::ban_sequences(row, in.history, in.params); }},
    {.name = "no_repeat_ngram",
     .is_asked = [](Params p) { return p.no_repeat_ngram > 0; },
     .change_row = [](Row row,
                      Input in) { stages::no_repeat_ngram(row, in.history, in.params.no_repeat_ngram, in.scratch); }},
    {.name = "allowed",
     .is_asked = [](Params p) { return !p.allowed.empty(); },
     .change_row = [](Row row, Input in) { stages::allow_only(row, in.allowed); }},
    {.name = "min_tokens",
     .is_asked = [](Params p) { return p.min_tokens > 0 || p.ignore_eos; },
     .acts = bans_the_end,
     .change_row = [](Row row, Input in) { stages::ban_tokens(row, in.end_of_generation); }},

    // Temperature.
    {.name = "temperature",
     .is_asked = [](Params p) { return p.temperature > 0 && (p.temperature != 1.0f || p.dynatemp_range > 0); },
     .change_row = [](Row row, Input in) { stages::temperature(row, in.params, in.scratch); }},

    // Truncation.
    {.name = "top_n_sigma",
     .is_asked = [](Params p) { return p.top_n_sigma > 0; },
     .cut_support = [](Support& s, Input in) { stages::top_n_sigma(s, in.params.top_n_sigma); }},
    {.name = "top_k",
     .is_asked = [](Params p) { return p.top_k > 0; },
     .cut_support = [](Support& s, Input in) { stages::top_k(s, in.params.top_k); }},
    {.name = "typical_p",
     .is_asked = [](Params p) { return p.typical_p < 1; },
     .cut_support = [](Support& s, Input in) { stages::typical(s, in.params.typical_p, in.scratch); }},
    {.name = "top_p",
     .is_asked = [](Params p) { return p.top_p < 1; },
     .cut_support = [](Support& s, Input in) { stages::top_p(s, in.params.top_p); }},
    {.name = "min_p",
     .is_asked = [](Params p) { return p.min_p > 0; },
     .cut_support = [](Support& s, Input in) { stages::min_p(s, in.params.min_p); }},
    {.name = "xtc",
     .is_asked = [](Params p) { return p.xtc_probability > 0; },
     .cut_support =
         [](Support& s, Input in) {
           stages::xtc(s, in.params.xtc_probability, in.params.xtc_threshold, in.seed, in.history.position());
         }},
    {.name = "mirostat",
     .is_asked = [](Params p) { return p.mirostat != 0; },
     .cut_support =
         [](Support& s, Input in) {
           in.params.mirostat == 1 ? stages::mirostat1(s, in.state.mirostat_mu, in.vocab_size)
                                   : stages::mirostat2(s, in.state.mirostat_mu);
         }},

    // The draw, which every request needs.
    {.name = "draw", .is_asked = [](Params) { return true; }},
};

constexpr size_t kCount = std::size(kStages);

constexpr std::array<StageId, kCount> kOrder = [] {
  std::array<StageId, kCount> order{};
  for (size_t i = 0; i < kCount; ++i) order[i] = StageId{static_cast<uint8_t>(i)};
  return order;
}();

}  // namespace

std::span<const Stage> stage_table() { return kStages; }

const Stage& stage(StageId id) { return kStages[static_cast<size_t>(id)]; }

std::string_view stage_name(StageId id) { return stage(id).name; }

std::span<const StageId> stage_order() { return kOrder; }

bool works_on_row(StageId id) { return stage(id).change_row != nullptr; }

bool is_stage_order(std::span<const StageId> order) {
  std::array<bool, kCount> seen{};
  for (const StageId id : order) {
    if (static_cast<size_t>(id) >= kCount || std::exchange(seen[static_cast<size_t>(id)], true)) return false;
  }
  return order.size() == kCount && std::ranges::is_partitioned(order, works_on_row) && order.back() == kOrder.back();
}

}  // namespace ibid
