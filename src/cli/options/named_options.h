// The flags of `ibid serve` as members of a JSON object, for programs that open an engine without a command line.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/options/options.h"

namespace ibid::cli {

// Reads {"model": "default", "ctx": 2048, "kv-dtype": "f16", "alias": ["a", "b"], "keep-packed": true, ...}. Names are
// those of the flags, with or without dashes before them; underscores are dashes. A text, a number or an object is the
// flag's value, an array gives the flag once for each value, true is a flag without a value, and false and null are as
// if the member were not there. Flags of sockets, keys and connections are refused by name, as are wrong names and
// values; Error::where is the member.
Result<ServeOptions> read_named_options(std::string_view json);

// The one model that the options name: the name under which it is served, and what is loaded.
struct OneModel {
  std::string name, typed;
};
// An error: they name several.
Result<OneModel> one_model(const ServeOptions& options);

}  // namespace ibid::cli
