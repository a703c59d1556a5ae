// Presets: what `ibid serve --for NAME` sets. Defaults of other flags, which still override them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/options/options.h"

namespace ibid::cli {

struct Preset {
  const char* name;
  const char* what;
  int32_t max_sequences;
  int32_t max_tokens_per_step;
  int32_t max_waiting;
  double max_itl;  // seconds; 0: by the model's speed
  PolicyKind policy;
  bool greedy;  // temperature 0 where a request does not set it
  bool allow_priority;
  bool own_context;  // the model's own, as far as memory goes
};

std::span<const Preset> presets();
Result<const Preset*> preset_by_name(std::string_view name);
void apply(const Preset& preset, ServeOptions& options);
// The table of docs/users/serving.md, as Markdown.
std::string presets_markdown();

}  // namespace ibid::cli
