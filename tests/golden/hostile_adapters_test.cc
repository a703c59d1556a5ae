// Adapters that were changed: each is read, or refused by a sentence; none ends the process or gets numbers that are
// not finite.
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "model/adapter_file.h"
#include "model/testing/config_as_gguf.h"
#include "model/testing/loaded_model.h"
#include "source_paths.h"
#include "temp_folder.h"

namespace ibid {
namespace {

using testing::LoadedModel;

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// One to four changes: of a byte, of a run, or the file cut short; most of them in its first part, where names and
// shapes stand.
std::string changed(std::string bytes, std::mt19937_64& bits) {
  const auto up_to = [&](size_t n) { return static_cast<size_t>(bits() % std::max<size_t>(1, n)); };
  for (size_t n = 1 + up_to(4); n > 0; --n) {
    const size_t at = up_to(up_to(4) != 0 ? std::min<size_t>(bytes.size(), 3000) : bytes.size());
    switch (up_to(6)) {
      case 0:
        bytes.resize(at);
        break;
      case 1:
        bytes.erase(at, up_to(9));
        break;
      case 2:
        bytes.insert(at, bytes.substr(up_to(bytes.size()), up_to(40)));
        break;
      default:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bits());
    }
  }
  return bytes;
}

struct Counts {
  int n_read = 0, n_refused = 0;
};

void take(const std::string& path, const ModelFile& base, LoadedModel& m, Counts& counts) {
  const auto read = read_adapter(path, base, *m.model, *m.stream);
  ++(read.ok() ? counts.n_read : counts.n_refused);
  if (!read.ok()) {
    EXPECT_FALSE(read.error().message.empty());
    return;
  }
  const auto placed = m.model->adapters()->place(*read);
  ASSERT_TRUE(placed.ok()) << placed.error().message;
  const std::vector<TokenId> tokens = testing::some_tokens(4, m.model->config().vocab_size);
  m.logits(tokens, {.adapter = (*placed)->slot});
}

constexpr ModelOptions kOptions = {
    .step_tokens = 128, .max_rows = 128, .max_adapters = 1, .max_adapter_rank = kMaxAdapterRank};

TEST(HostileAdapter, ThousandsOfChangesAreReadOrRefused) {
  const std::string golden = source_dir() + "/tests/golden/", adapter = golden + "lora/llama_patterns/";
  const auto folder = std::make_shared<ModelFile>(ModelFile::open(golden + "llama").value());
  const auto gguf = std::make_shared<ModelFile>(testing::as_gguf(*folder).value());
  LoadedModel of_folder(folder, kOptions), of_gguf(gguf, kOptions);
  const std::string config = bytes_of(adapter + "adapter_config.json"),
                    tensors = bytes_of(adapter + "adapter_model.safetensors"),
                    file = bytes_of(golden + "lora/llama.gguf");
  std::mt19937_64 bits(11);
  const TempFolder temp;
  Counts counts[3];
  for (int i = 0; i < 1000; ++i) {
    write(temp.path("adapter_config.json"), changed(config, bits));
    write(temp.path("adapter_model.safetensors"), tensors);
    take(temp.path(""), *folder, of_folder, counts[0]);
    write(temp.path("adapter_config.json"), config);
    write(temp.path("adapter_model.safetensors"), changed(tensors, bits));
    take(temp.path(""), *folder, of_folder, counts[1]);
    write(temp.path("adapter.gguf"), changed(file, bits));
    take(temp.path("adapter.gguf"), *gguf, of_gguf, counts[2]);
  }
  for (const Counts& of : counts) {
    EXPECT_GT(of.n_read, 5);
    EXPECT_GT(of.n_refused, 100);
  }
}

TEST(HostileAdapter, WhatHasToBeRunToBeReadIsRefused) {
  const std::string golden = source_dir() + "/tests/golden/";
  const auto base = std::make_shared<ModelFile>(ModelFile::open(golden + "llama").value());
  LoadedModel m(base, kOptions);
  const TempFolder temp;
  write(temp.path("adapter_config.json"), bytes_of(golden + "lora/llama/adapter_config.json"));
  write(temp.path("adapter_model.bin"), "\x80\x02}q.");
  const auto read = read_adapter(temp.path(""), *base, *m.model, *m.stream);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("runs code of the file"), std::string::npos) << read.error().message;
}

}  // namespace
}  // namespace ibid
