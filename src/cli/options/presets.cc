#include "cli/options/presets.h"

#include <fmt/format.h>

namespace ibid::cli {
namespace {

// Who waits for a whole run, and not for a token, is served best by steps as large as they pay.
constexpr double kNoPace = 60;
// As many as one address may have connections. Each place in the queue is memory that is set aside for a whole context.
constexpr int32_t kLongQueue = 4096;

constexpr Preset kPresets[] = {
    {"chat", "interactive chat: low time to first token, steady inter-token latency; the default", 64, 512, 512, 0,
     PolicyKind::kFair, false, false, false},
    {"offline", "offline jobs: highest throughput", 128, 1024, kLongQueue, kNoPace, PolicyKind::kFirstCome, false,
     false, false},
    {"eval", "evaluations: as offline, with temperature 0 unless a request sets it", 64, 1024, kLongQueue, kNoPace,
     PolicyKind::kFirstCome, true, false, false},
    {"agent", "agents with long shared prefixes: few sequences, a short queue, priorities", 32, 512, 64, 0,
     PolicyKind::kPriority, false, true, true},
    {"batch", "labelling: short answers to many prompts, in order, at temperature 0", 128, 2048, kLongQueue, kNoPace,
     PolicyKind::kFirstCome, true, false, false},
};

}  // namespace

std::span<const Preset> presets() { return kPresets; }

Result<const Preset*> preset_by_name(std::string_view name) {
  for (const Preset& preset : kPresets) {
    if (name == preset.name) return &preset;
  }
  return invalid("unknown value '" + std::string(name) + "'; expected chat, offline, eval, agent or batch", "for");
}

void apply(const Preset& preset, ServeOptions& o) {
  o.max_sequences = preset.max_sequences;
  o.max_tokens_per_step = preset.max_tokens_per_step;
  o.max_waiting = preset.max_waiting;
  o.max_itl = preset.max_itl;
  o.policy = preset.policy;
  o.server.api.allow_priority = preset.allow_priority;
  o.model.own_context = preset.own_context;
  if (preset.greedy) static_cast<void>(set_sampling(o.sampling, *find_parameter("temperature"), "0"));
}

std::string presets_markdown() {
  std::string out =
      "| `--for` | for | `--max-sequences` | `--max-tokens-per-step` | `--max-waiting` | `--max-itl` | `--policy` "
      "| "
      "also |\n|---|---|--:|--:|--:|---|---|---|\n";
  for (const Preset& p : kPresets) {
    out += fmt::format("| `{}` | {} | {} | {} | {} | {} | `{}` | {} |\n", p.name, p.what, p.max_sequences,
                       p.max_tokens_per_step, p.max_waiting,
                       p.max_itl > 0 ? fmt::format("{} s", p.max_itl) : "by the model's speed", name_of(p.policy),
                       p.greedy           ? "`--temp 0`"
                       : p.allow_priority ? "`--allow-priority`, the model's own context as far as memory allows"
                                          : "");
  }
  return out;
}

}  // namespace ibid::cli
