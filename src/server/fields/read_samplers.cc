// llama.cpp's list of samplers.
#include <algorithm>
#include <array>
#include <utility>

#include "server/fields/read_fields.h"

namespace ibid {
namespace {

enum class Listed : uint8_t { kPenalties, kDry, kTopNSigma, kTopK, kTypical, kTopP, kMinP, kXtc, kTemperature };

struct ListedName {
  std::string_view name;
  char letter;  // 0: none
  Listed sampler;
};

constexpr ListedName kSamplerNames[] = {
    {"penalties", 'e', Listed::kPenalties},
    {"dry", 'd', Listed::kDry},
    {"top_n_sigma", 's', Listed::kTopNSigma},
    {"top-n-sigma", 0, Listed::kTopNSigma},
    {"top_k", 'k', Listed::kTopK},
    {"top-k", 0, Listed::kTopK},
    {"typ_p", 'y', Listed::kTypical},
    {"typical_p", 0, Listed::kTypical},
    {"typical", 0, Listed::kTypical},
    {"typ-p", 0, Listed::kTypical},
    {"typical-p", 0, Listed::kTypical},
    {"typ", 0, Listed::kTypical},
    {"top_p", 'p', Listed::kTopP},
    {"top-p", 0, Listed::kTopP},
    {"nucleus", 0, Listed::kTopP},
    {"min_p", 'm', Listed::kMinP},
    {"min-p", 0, Listed::kMinP},
    {"xtc", 'x', Listed::kXtc},
    {"temperature", 't', Listed::kTemperature},
    {"temp", 0, Listed::kTemperature},
};

constexpr uint32_t bit(Listed sampler) { return 1u << static_cast<uint32_t>(sampler); }

// The set; names and letters that are not known add nothing.
Result<uint32_t> read_set(const Json& value) {
  uint32_t set = 0;
  if (const std::string* letters = value.string()) {
    for (const char letter : *letters) {
      for (const ListedName& known : kSamplerNames)
        set |= letter == known.letter && letter != 0 ? bit(known.sampler) : 0;
    }
    return set;
  }
  constexpr size_t kMost = 64;
  if (value.array() == nullptr || value.array()->size() > kMost)
    return wrong_value("samplers", "an array of at most 64 names, or a text of letters", value);
  for (const Json& item : *value.array()) {
    if (item.string() == nullptr) return wrong_value("samplers", "an array of names", item);
    for (const ListedName& known : kSamplerNames) set |= *item.string() == known.name ? bit(known.sampler) : 0;
  }
  return set;
}

}  // namespace

Status read_samplers(ApiRequest&, const Json& value, const ApiLimits&) {
  ASSIGN_OR_RETURN([[maybe_unused]] const uint32_t set, read_set(value));
  return {};
}

Status keep_samplers(ApiRequest& request, const Json& samplers) {
  ASSIGN_OR_RETURN(const uint32_t set, read_set(samplers));
  const SamplingParams off;  // its own values change no distribution
  SamplingParams& p = request.sampling;
  const auto leave_out = [&](Listed sampler, auto member, const char* name) {
    if ((set & bit(sampler)) != 0) return;
    p.*member = off.*member;
    request.sources.set(name, SamplingSource::kRequest);
  };
  leave_out(Listed::kPenalties, &SamplingParams::repetition_penalty, "repetition_penalty");
  leave_out(Listed::kPenalties, &SamplingParams::presence_penalty, "presence_penalty");
  leave_out(Listed::kPenalties, &SamplingParams::frequency_penalty, "frequency_penalty");
  leave_out(Listed::kDry, &SamplingParams::dry_multiplier, "dry_multiplier");
  leave_out(Listed::kTopNSigma, &SamplingParams::top_n_sigma, "top_n_sigma");
  leave_out(Listed::kTopK, &SamplingParams::top_k, "top_k");
  leave_out(Listed::kTypical, &SamplingParams::typical_p, "typical_p");
  leave_out(Listed::kTopP, &SamplingParams::top_p, "top_p");
  leave_out(Listed::kMinP, &SamplingParams::min_p, "min_p");
  leave_out(Listed::kXtc, &SamplingParams::xtc_probability, "xtc_probability");
  leave_out(Listed::kTemperature, &SamplingParams::temperature, "temperature");
  leave_out(Listed::kTemperature, &SamplingParams::dynatemp_range, "dynatemp_range");
  return {};
}

}  // namespace ibid
