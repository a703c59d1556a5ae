// Any bytes as a GGUF file: read it, look at every tensor and key, take its vocabulary.
#include <cstdlib>
#include <vector>

#include "format/gguf.h"
#include "format/gguf_vocabulary.h"
#include "memory_file.h"
#include "tensor/dequantise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static ibid::MemoryFile memory;
  ibid::Result<ibid::ModelFile> file = ibid::open_gguf(memory.with(data, size));
  if (!file.ok()) return 0;
  std::span<const std::byte> bytes = file->files()[0].bytes();
  for (const ibid::TensorInfo& info : file->tensors()) {
    const std::byte* begin = info.view.data;
    if (begin < bytes.data() || begin + info.bytes() > bytes.data() + bytes.size()) std::abort();
    if (file->find(info.name) != &info) std::abort();
    if (info.view.dtype >= ibid::DType::kI8 && info.view.dtype <= ibid::DType::kI64) continue;
    std::vector<float> row(static_cast<size_t>(info.view.row_len()));
    ibid::dequantise_row(info.view.dtype, info.view.row(info.view.n_rows() - 1), row.data(), info.view.row_len());
  }
  for (const auto& [key, value] : file->metadata()) {
    static_cast<void>(file->meta_int(key).ok());
    static_cast<void>(file->meta_floats(key).ok());
    static_cast<void>(file->meta_strings(key).ok());
  }
  static_cast<void>(ibid::vocabulary_from_gguf(*file).ok());
  return 0;
}
