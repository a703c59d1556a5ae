// How tokens were drawn, as text and as one number: the order of the stages, the version of the arithmetic that
// made the logits, and every parameter that can change a token. The text, and so the number, is the same on every
// machine and in every process (row T3), so that traces show whether two answers were drawn alike.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "sample/parameter_rows.h"
#include "sample/sampling_params.h"
#include "sample/stage_order.h"

namespace ibid {

// The lines that are hashed: "stages=a,b,c", and for the sampling "arithmetic_version=n" and "name=value" for each
// parameter, each with a newline. Floats have the fewest digits that round-trip; texts are preceded by their length in
// bytes.
std::string spell_stages(std::span<const StageId> order = stage_order());
std::string spell_sampling(const SamplingParams& params, std::span<const StageId> order = stage_order());

// XXH3-128 of such lines, as 32 hexadecimal digits.
std::string sampling_digest(std::string_view spelled);

}  // namespace ibid
