#include "sample/stage_order.h"

#include <algorithm>
#include <array>

namespace ibid {
namespace {

using enum StageId;

constexpr std::array kPolicy = {
    // penalties
    kRepetitionPenalty, kPresenceFrequencyPenalty, kDry,
    // biases, then hard masks
    kLogitBias, kBanned, kBannedSequences, kNoRepeatNgram, kAllowed, kMinTokens,
    // temperature
    kTemperature,
    // truncation
    kTopNSigma, kTopK, kTypicalP, kTopP, kMinP, kXtc, kMirostat,
    // and the draw
    kDraw};

}  // namespace

std::string_view stage_name(StageId id) {
  switch (id) {
    case kRepetitionPenalty:
      return "repetition_penalty";
    case kPresenceFrequencyPenalty:
      return "presence_frequency_penalty";
    case kDry:
      return "dry";
    case kLogitBias:
      return "logit_bias";
    case kBanned:
      return "banned";
    case kBannedSequences:
      return "banned_sequences";
    case kNoRepeatNgram:
      return "no_repeat_ngram";
    case kAllowed:
      return "allowed";
    case kMinTokens:
      return "min_tokens";
    case kTemperature:
      return "temperature";
    case kTopNSigma:
      return "top_n_sigma";
    case kTopK:
      return "top_k";
    case kTypicalP:
      return "typical_p";
    case kTopP:
      return "top_p";
    case kMinP:
      return "min_p";
    case kXtc:
      return "xtc";
    case kMirostat:
      return "mirostat";
    case kDraw:
      return "draw";
  }
  return "";
}

std::span<const StageId> stage_order() { return kPolicy; }

bool works_on_row(StageId id) { return id <= kTemperature; }

bool is_stage_order(std::span<const StageId> order) {
  std::array<int, kPolicy.size()> n_times{};
  for (const StageId id : order) ++n_times[static_cast<size_t>(id)];
  return order.size() == kPolicy.size() && std::ranges::all_of(n_times, [](int n) { return n == 1; }) &&
         std::ranges::is_partitioned(order, works_on_row) && order.back() == kDraw;
}

}  // namespace ibid
