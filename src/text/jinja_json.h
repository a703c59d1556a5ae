// JSON text to template values.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/jinja_value.h"

namespace ibid::jinja {

enum class JsonMarks {
  kAll,       // every string, keys too, is a user's
  kMessages,  // ... but the roles of the messages, where they spell nothing but a word
};

// At most 100 levels deep. `what` names the input in errors.
Result<Value> read_json(std::string_view json, std::string_view what, JsonMarks marks);

}  // namespace ibid::jinja
