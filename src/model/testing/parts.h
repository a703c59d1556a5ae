// What a loader gathers of a model, for tests that change a part of it and expect a sentence.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "format/model_file.h"
#include "model/model.h"
#include "model/testing/tiny_model.h"

namespace ibid::testing {

// A folder without weights, its metadata as config.json of a small llama gives it.
inline ModelFile::Parts folder_parts(std::string_view model_type = "llama") {
  ModelFile::Parts parts;
  parts.container = Container::kSafetensors;
  parts.path = "folder";
  parts.metadata = {{"model_type", std::string(model_type)},
                    {"hidden_size", int64_t{64}},
                    {"intermediate_size", int64_t{128}},
                    {"num_hidden_layers", int64_t{8}},
                    {"num_attention_heads", int64_t{4}},
                    {"num_key_value_heads", int64_t{2}},
                    {"vocab_size", int64_t{100}},
                    {"max_position_embeddings", int64_t{4096}},
                    {"rms_norm_eps", 1e-5}};
  return parts;
}

// A tiny GGUF model, to be changed.
inline ModelFile::Parts tiny_parts(TinyModelOptions options = {}) {
  const auto file = tiny_model_file(options);
  ModelFile::Parts parts;
  parts.path = "tiny";
  parts.metadata = file->metadata();
  for (const TensorInfo& t : file->tensors()) {
    auto copy = std::make_unique<std::byte[]>(t.bytes());
    std::memcpy(copy.get(), t.view.data, t.bytes());
    parts.tensors.push_back(t);
    parts.tensors.back().view.data = copy.get();
    parts.copies.push_back(std::move(copy));
  }
  return parts;
}

// A change and a part of the sentence that it must give.
struct Bad {
  const char* what;
  std::function<void(ModelFile::Parts&)> change;
  const char* says;
};

// The sentence that a GGUF model is refused with; empty: it is not.
inline std::string load_error(ModelFile::Parts parts) {
  ThreadTeam team(1);
  Stream stream(team);
  const auto model =
      load_model(std::make_shared<ModelFile>(std::move(parts)), {.step_tokens = 8, .max_rows = 8}, stream);
  return model ? "" : model.error().message;
}

inline void drop(ModelFile::Parts& parts, std::string_view name) {
  std::erase_if(parts.tensors, [name](const TensorInfo& t) { return t.name == name; });
}
inline void set(ModelFile::Parts& parts, const std::string& key, MetaValue value) {
  parts.metadata[key] = std::move(value);
}

}  // namespace ibid::testing
