#include "model/testing/config_as_gguf.h"

#include <cstring>
#include <memory>
#include <vector>

#include "format/gguf_writer.h"
#include "model/gguf_form.h"

namespace ibid::testing {

Result<ModelFile> as_gguf(const ModelFile& folder) {
  ASSIGN_OR_RETURN(const ModelConfig own, read_config(folder));
  const ModelConfig config = gguf_config_of(own);
  ModelFile::Parts parts;
  parts.path = folder.path() + " as GGUF";
  parts.metadata = metadata_of(config);
  auto add = [&parts](const std::string& name, const std::vector<float>& values, const std::vector<int64_t>& dims) {
    auto copy = std::make_unique<std::byte[]>(values.size() * sizeof(float));
    std::memcpy(copy.get(), values.data(), values.size() * sizeof(float));
    parts.tensors.push_back({name, view_of(copy.get(), DType::kF32, dims)});
    parts.copies.push_back(std::move(copy));
  };
  for (const TensorSpec& spec : tensors_of(config)) {
    ASSIGN_OR_RETURN(const std::vector<float> values, gguf_values(folder, {}, own, spec));
    add(spec.name, values, spec.dims);
  }
  for (const auto& [name, values] : rope_vectors_of(config)) add(name, values, {static_cast<int64_t>(values.size())});
  return ModelFile(std::move(parts));
}

std::string gguf_bytes(const ModelFile& file) {
  GgufWriter writer;
  for (const auto& [key, value] : file.metadata()) writer.set(key, value);
  for (const TensorInfo& tensor : file.tensors()) writer.add_tensor(tensor.name, tensor.view);
  return writer.bytes();
}

}  // namespace ibid::testing
