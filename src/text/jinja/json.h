// JSON text to template values.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/jinja/value.h"

namespace ibid::jinja {

enum class JsonMarks {
  kNone,      // the template's own
  kAll,       // every string, keys too, is a user's
  kMessages,  // ... but the roles of the messages, if they are a single word
};

class Machine;

// At most 100 levels deep. `what` names the input in errors. With a machine the values are charged as they are made; if
// it fails meanwhile, the value must not be used.
Result<Value> read_json(std::string_view json, std::string_view what, JsonMarks marks, Machine* machine = nullptr);

}  // namespace ibid::jinja
