#include "server/fields/sampling_defaults.h"

#include <algorithm>
#include <cmath>

#include "format/model_file.h"
#include "server/fields/parameters.h"

namespace ibid {
namespace {

struct ModelKey {
  const char* key;   // in the file's metadata
  const char* name;  // the API's
};

// As llama.cpp writes and reads them. `general.sampling.sequence` is not used: our order of stages is fixed.
constexpr ModelKey kGgufKeys[] = {
    {"general.sampling.temp", "temperature"},
    {"general.sampling.top_k", "top_k"},
    {"general.sampling.top_p", "top_p"},
    {"general.sampling.min_p", "min_p"},
    {"general.sampling.xtc_probability", "xtc_probability"},
    {"general.sampling.xtc_threshold", "xtc_threshold"},
    {"general.sampling.penalty_last_n", "repeat_last_n"},
    {"general.sampling.penalty_repeat", "repetition_penalty"},
    {"general.sampling.mirostat", "mirostat"},
    {"general.sampling.mirostat_tau", "mirostat_tau"},
    {"general.sampling.mirostat_eta", "mirostat_eta"},
};
// As transformers names them. do_sample is not looked at, as in vLLM.
constexpr ModelKey kFolderKeys[] = {
    {"generation_config.temperature", "temperature"},
    {"generation_config.top_k", "top_k"},
    {"generation_config.top_p", "top_p"},
    {"generation_config.min_p", "min_p"},
    {"generation_config.typical_p", "typical_p"},
    {"generation_config.repetition_penalty", "repetition_penalty"},
    {"generation_config.no_repeat_ngram_size", "no_repeat_ngram_size"},
};

// A number of the file as JSON. What is no number becomes a word that names it, for the reader's sentence.
Json json_of(const MetaValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return Json(*integer);
  if (const auto* large = std::get_if<uint64_t>(&value)) return Json(*large);
  if (const auto* number = std::get_if<double>(&value)) {
    if (std::isfinite(*number)) return Json(*number);
    return Json(std::string(std::isnan(*number) ? "NaN" : "infinity"));
  }
  if (const auto* text = std::get_if<std::string>(&value)) return Json(*text);
  return Json(std::string(meta_kind(value)));
}

}  // namespace

std::string_view source_name(SamplingSource source) {
  switch (source) {
    case SamplingSource::kDefault:
      return "default";
    case SamplingSource::kModel:
      return "model";
    case SamplingSource::kFlag:
      return "flag";
    case SamplingSource::kRequest:
      return "request";
  }
  return "";
}

void SamplingSources::set(std::string_view name, SamplingSource source) {
  for (auto& [known, from] : set_) {
    if (known == name) from = source;
    if (known == name) return;
  }
  set_.emplace_back(name, source);
}

SamplingSource SamplingSources::of(std::string_view name) const {
  for (const auto& [known, from] : set_) {
    if (known == name) return from;
  }
  return SamplingSource::kDefault;
}

bool is_sampler_number(const Parameter& p) {
  return samples(p) && p.endpoints == kBoth && (p.type == FieldType::kNumber || p.type == FieldType::kInteger) &&
         std::string_view(p.name) != "min_tokens";  // it is a length, and belongs to a request's max_tokens
}

Status set_default(SamplingDefaults& defaults, const Parameter& parameter, const Json& value, SamplingSource source) {
  CHECK(is_sampler_number(parameter), parameter.name);
  ApiRequest request;
  request.sampling = defaults.params;
  TRY(read_parameter(parameter, value, ApiLimits(), request));
  defaults.params = std::move(request.sampling);
  defaults.sources.set(own_name(parameter), source);
  return {};
}

std::vector<std::string> take_model_defaults(const ModelFile& file, SamplingDefaults& defaults) {
  const bool is_gguf = file.container() == Container::kGguf;
  std::vector<std::string> unused;
  for (const ModelKey& key : is_gguf ? std::span<const ModelKey>(kGgufKeys) : std::span<const ModelKey>(kFolderKeys)) {
    const MetaValue* value = file.meta(key.key);
    if (value == nullptr) continue;
    const Parameter* parameter = find_parameter(key.name);
    CHECK(parameter != nullptr, key.name);
    const Status taken = set_default(defaults, *parameter, json_of(*value), SamplingSource::kModel);
    if (!taken) unused.push_back(std::string("The model's ") + key.key + " is not used: " + taken.error().message);
  }
  return unused;
}

}  // namespace ibid
