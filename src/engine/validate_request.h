// Checks a request wholly before it is taken, so that nothing in it can fail a step later.
#pragma once

#include "engine/forward_pass.h"
#include "engine/request.h"

namespace ibid {

inline constexpr int32_t kMaxChoices = 128;

// A sentence that names the field at fault. Pure: from any thread. `has_text`: there is a tokenizer to find stop
// strings with.
Status validate_request(const Request& request, const ModelFacts& model, bool has_text);

}  // namespace ibid
