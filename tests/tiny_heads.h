// Random draft heads for a tiny model, under the names of each kind of file.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "format/model_file.h"

namespace ibid::testing {

enum class HeadNames : uint8_t { kOwn, kHydra, kMedusa };

struct TinyHeads {
  int64_t width = 0, vocab_size = 0;
  int64_t n_heads = 2, n_layers = 2;
  bool is_grounded = true;   // reads the tokens after the hidden state
  bool has_outputs = false;  // of its own
  std::vector<int64_t> ids;  // empty: all of the vocabulary
  HeadNames names = HeadNames::kOwn;
  uint64_t seed = 1;
  std::string left_out = {};  // a tensor that is missing
};

inline std::string head_name(const TinyHeads& o, int64_t head, int64_t layer, const std::string& part) {
  const std::string i = std::to_string(head), j = std::to_string(layer);
  if (part == "output") {
    if (o.names == HeadNames::kMedusa) return "medusa_head." + i + "." + std::to_string(o.n_layers);
    return o.names == HeadNames::kHydra ? "hydra_lm_head." + i : "head." + i + ".output";
  }
  if (o.names == HeadNames::kMedusa) return "medusa_head." + i + "." + j + ".linear";
  if (o.names == HeadNames::kHydra)
    return "hydra_mlp." + i + "." + j + (part == "skip" ? ".res_connection" : ".linear");
  return "head." + i + ".blk." + j + "." + part;
}

inline std::shared_ptr<const ModelFile> tiny_heads_file(const TinyHeads& o) {
  ModelFile::Parts parts;
  parts.path = "tiny heads";
  std::mt19937_64 random(o.seed);
  const auto add = [&](const std::string& name, std::initializer_list<int64_t> dims) {
    if (name == o.left_out) return;
    int64_t n = 1;
    for (const int64_t d : dims) n *= d;
    auto bytes = std::make_unique<std::byte[]>(static_cast<size_t>(n) * sizeof(float));
    for (int64_t i = 0; i < n; ++i) {
      const float x = (static_cast<float>(random() >> 40) / float{1 << 24} - 0.5F) * 0.6F;
      std::memcpy(bytes.get() + static_cast<size_t>(i) * sizeof x, &x, sizeof x);
    }
    parts.tensors.push_back({name, TensorView(bytes.get(), DType::kF32, dims)});
    parts.copies.push_back(std::move(bytes));
  };
  for (int64_t i = 0; i < o.n_heads; ++i) {
    for (int64_t j = 0; j < o.n_layers; ++j) {
      const int64_t n_inputs = j == 0 && o.is_grounded ? (i + 2) * o.width : o.width;
      for (const std::string part : {"linear", "skip"}) {
        if (part == "skip" && n_inputs == o.width) continue;
        add(head_name(o, i, j, part) + ".weight", {o.width, n_inputs});
        add(head_name(o, i, j, part) + ".bias", {o.width});
      }
    }
    const int64_t n_outputs = o.ids.empty() ? o.vocab_size : static_cast<int64_t>(o.ids.size());
    if (o.has_outputs) add(head_name(o, i, 0, "output") + ".weight", {n_outputs, o.width});
  }
  const std::string architecture = o.is_grounded ? "hydra" : "medusa";
  parts.metadata["general.architecture"] = architecture;
  if (!o.ids.empty()) parts.metadata[architecture + ".token_ids"] = o.ids;
  return std::make_shared<const ModelFile>(std::move(parts));
}

}  // namespace ibid::testing
