// Any bytes as a safetensors file, as its index and as JSON.
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/json.h"
#include "format/safetensors.h"
#include "memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static ibid::MemoryFile memory;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(ibid::parse_json(text, "fuzz").ok());
  if (ibid::Result<std::vector<std::string>> shards = ibid::shards_of_index(text, "fuzz")) {
    for (const std::string& name : *shards) {
      if (name.find('/') != std::string::npos) std::abort();
    }
  }
  ibid::Result<ibid::MappedFile> file = ibid::MappedFile::open(memory.with(data, size));
  if (!file.ok()) return 0;
  std::vector<ibid::TensorInfo> tensors;
  std::vector<std::unique_ptr<std::byte[]>> copies;
  if (!ibid::read_safetensors(*file, tensors, copies).ok()) return 0;
  unsigned sum = 0;
  for (const ibid::TensorInfo& info : tensors) {
    for (size_t i = 0; i < info.bytes(); ++i) sum += static_cast<unsigned>(info.view.data[i]);
  }
  static_cast<void>(sum);
  return 0;
}
