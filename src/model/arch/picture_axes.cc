// What the architectures of Qwen's models with pictures share: the axes of RoPE, and the layers that pictures add to.
#include <algorithm>

#include "model/arch/common.h"

namespace ibid::arch {
namespace {

// Of sections {t, h, w} the pairs are dealt in turn, until an axis has had its own; what is left is time's
// (Qwen3-VL). Or section after section (Qwen2-VL).
std::vector<uint8_t> axes_of(const std::vector<int64_t>& sections, bool in_turn, int n_pairs) {
  std::vector<uint8_t> axes(static_cast<size_t>(n_pairs), 0);
  for (int64_t i = 0; i < n_pairs; ++i) {
    const int64_t axis = in_turn ? i % 3 : i < sections[0] ? 0 : i < sections[0] + sections[1] ? 1 : 2;
    const bool has_turn = !in_turn || i < 3 * sections[static_cast<size_t>(axis)];
    if (has_turn) axes[static_cast<size_t>(i)] = static_cast<uint8_t>(axis);
  }
  return axes;
}

Status read_axes(const ModelFile& file, const std::string& key, bool in_turn, RopeConfig& rope) {
  ASSIGN_OR_RETURN(std::vector<int64_t> sections, file.meta_ints(key));
  if (sections.size() == 4 && sections[3] == 0) sections.pop_back();  // GGUF
  int64_t sum = 0;
  bool are_sizes = sections.size() == 3;
  for (const int64_t n : sections) are_sizes = are_sizes && n >= 0 && n <= rope.n_pairs, sum += are_sizes ? n : 0;
  if (!are_sizes || sum != rope.n_pairs) {
    return invalid("the model deals " + std::to_string(rope.n_pairs) +
                       " pairs of a head to time, rows and columns by other sizes; expected three that sum to it",
                   key);
  }
  rope.axes = axes_of(sections, in_turn, rope.n_pairs);
  return {};
}

}  // namespace

Status rope_axes_from_gguf(const ModelFile& file, bool in_turn, ModelConfig& config) {
  const std::string key = config.architecture + ".rope.dimension_sections";
  return file.has_meta(key) ? read_axes(file, key, in_turn, config.ropes.front()) : Status{};
}

Status rope_axes_from_folder(const ModelFile& file, const std::string& prefix, ModelConfig& config) {
  for (const char* object : {"rope_parameters.", "rope_scaling."}) {
    const std::string key = prefix + object + "mrope_section";
    if (!file.has_meta(key)) continue;
    ASSIGN_OR_RETURN(const bool in_turn, file.meta_bool(prefix + object + "mrope_interleaved", true));
    return read_axes(file, key, in_turn, config.ropes.front());
  }
  return {};
}

Status set_picture_layers(int64_t n, const std::string& key, ModelConfig& config) {
  if (n < 0 || n >= config.n_layers) {
    return invalid("pictures are added to " + std::to_string(n) + " layers of " + std::to_string(config.n_layers) +
                       "; expected fewer than there are",
                   key);
  }
  config.n_picture_layers = n;
  return {};
}

}  // namespace ibid::arch
