#include "sample/sampling_digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>
#include <concepts>

#include "kernels/arithmetic_version.h"

namespace ibid {
namespace {

// Not fmt: it does not promise the spelling of floats.
template <typename Number>
requires std::integral<Number> || std::floating_point<Number>
void spell(std::string& out, Number number) {
  char text[32];
  out.append(text, std::to_chars(text, text + sizeof text, number).ptr);
}
void spell(std::string& out, bool value) { out += value ? "true" : "false"; }
void spell(std::string& out, TokenId id) { spell(out, raw(id)); }
void spell(std::string& out, const std::string& text) {
  spell(out, text.size());
  out.append(":").append(text);
}
void spell(std::string& out, const std::pair<TokenId, float>& bias) {
  spell(out, bias.first);
  out += ':';
  spell(out, bias.second);
}
template <typename Item>
void spell(std::string& out, const std::vector<Item>& items) {
  out += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ',';
    spell(out, items[i]);
  }
  out += ']';
}

}  // namespace

std::string spell_stages(std::span<const StageId> order) {
  std::string out = "stages=";
  for (size_t i = 0; i < order.size(); ++i) out.append(i > 0 ? "," : "").append(stage_name(order[i]));
  return out + '\n';
}

std::string spell_sampling(const SamplingParams& params, std::span<const StageId> order) {
  std::string out = spell_stages(order) + "arithmetic=" + arithmetic_id() + '\n';
  for_each_parameter(params, [&](std::string_view name, const auto& value) {
    out.append(name) += '=';
    spell(out, value);
    out += '\n';
  });
  return out;
}

std::string sampling_digest(std::string_view spelled) {
  const XXH128_hash_t hash = XXH3_128bits(spelled.data(), spelled.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace ibid
