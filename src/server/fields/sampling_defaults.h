// SamplingDefaults: how a request is sampled that does not set it itself. Each number comes from the request, else from
// the operator's flags, else from the model's file, else from ibid; a trace names the source.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sample/sampling_params.h"

namespace ibid {

class Json;
class ModelFile;
struct Parameter;

enum class SamplingSource : uint8_t { kDefault, kModel, kFlag, kRequest };
// "default", "model", "flag", "request".
std::string_view source_name(SamplingSource source);

// By the API's names of parameters; one that was never set has ibid's default.
class SamplingSources {
 public:
  void set(std::string_view name, SamplingSource source);  // `name` must live for ever, as those of the table do
  SamplingSource of(std::string_view name) const;

 private:
  std::vector<std::pair<std::string_view, SamplingSource>> set_;
};

struct SamplingDefaults {
  // ibid's own. A small quantised model's tail is noise, and at temperature 1 without a cut it writes word salad; all
  // else is off, so that a request that names temperature 1 and top_p 1 draws from the model's own distribution.
  SamplingDefaults() { params.temperature = 0.7f, params.top_p = 0.95f; }

  SamplingParams params;
  SamplingSources sources;
};

// True of the numbers that control how a token is chosen: they may have a default of the model or of the operator.
bool is_sampler_number(const Parameter& parameter);

// Checked as a request's field is; the error is the same sentence.
Status set_default(SamplingDefaults& defaults, const Parameter& parameter, const Json& value, SamplingSource source);

// Takes what the model's makers recommend: generation_config.json beside a folder's weights, general.sampling.* of a
// GGUF. Returns a sentence for each value that is not used because it is out of its range.
std::vector<std::string> take_model_defaults(const ModelFile& file, SamplingDefaults& defaults);

}  // namespace ibid
