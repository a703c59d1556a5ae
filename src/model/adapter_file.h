// Reads adapters of low rank from what users have: a folder as PEFT saves it (adapter_config.json and
// adapter_model.safetensors), or a GGUF file of llama.cpp's converter (general.type = adapter).
//
// Every tensor of the adapter must belong to a product of the model, of its very sizes: one that names anything else is
// refused, never left out. So are DoRA, biases, whole modules and embeddings beside the matrices, and pickles
// (adapter_model.bin), which would have to be run to be read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/model_file.h"
#include "model/adapters.h"
#include "model/model.h"

namespace ibid {

// `base`: the file that `model` was loaded from, whose container decides the order of rows that its products have.
// `s`: a stream that runs nothing else meanwhile; its team packs. Errors are sentences about the adapter.
Result<std::shared_ptr<const Adapter>> read_adapter(const std::string& path, const ModelFile& base, const Model& model,
                                                    Stream& s);

// The same as pairs of the seats of `model`, which may be one without weights, for a purpose of the caller's.
Result<std::vector<Adapter::Pair>> read_adapter_pairs(const std::string& path, const ModelFile& base,
                                                      const Model& model);

}  // namespace ibid
