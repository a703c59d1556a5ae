// Files of tiny random models, and of what drafts for them, for flags that name files.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

#include "format/gguf_writer.h"
#include "model/model.h"
#include "model/testing/tiny_model.h"
#include "temp_folder.h"
#include "tiny_eagle.h"

namespace ibid::testing {

// What was made in memory for drafting, as a file of that architecture.
inline std::string written_draft_file(const TempFolder& folder, const char* architecture, const ModelFile& made) {
  GgufWriter writer;
  writer.set("general.architecture", architecture);
  for (const auto& [key, value] : made.metadata()) writer.set(key, value);
  for (const TensorInfo& t : made.tensors()) writer.add_tensor(t.name, t.view);
  std::string path = folder.path(std::string(architecture) + ".gguf");
  EXPECT_TRUE(writer.write(path).ok());
  return path;
}

inline std::string tiny_file(const TempFolder& folder, const char* name, int64_t vocab_size, uint64_t seed) {
  const std::string path = folder.path(name);
  std::ofstream(path, std::ios::binary) << tiny_gguf(
      {.seed = seed, .vocab_size = vocab_size, .context_len = 128, .tokenizer = true});
  return path;
}

inline std::string tiny_eagle_path(const TempFolder& folder, const Model& target) {
  return written_draft_file(
      folder, "eagle", *tiny_eagle_file({.width = target.config().width, .vocab_size = 260, .ids = {0, 7, 8, 250}}));
}

// As llama.cpp's files have one, after the model's last layer.
inline std::string tiny_with_mtp(const TempFolder& folder, std::string_view architecture = "llama") {
  const auto model =
      tiny_model_file({.architecture = architecture, .vocab_size = 260, .context_len = 128, .tokenizer = true});
  const ModelConfig config = read_config(*model).value();
  const auto layer = tiny_mtp_file(config, false);
  const std::string following = "blk." + std::to_string(config.n_layers) + ".";
  const std::map<std::string, std::string> names = {{"fc.weight", "nextn.eh_proj.weight"},
                                                    {"embed_norm.weight", "nextn.enorm.weight"},
                                                    {"norm.weight", "nextn.shared_head_norm.weight"},
                                                    {"hidden_norm.weight", "nextn.hnorm.weight"}};
  GgufWriter writer;
  for (const auto& [key, value] : model->metadata()) {
    if (!key.ends_with(".block_count")) writer.set(key, value);
  }
  writer.set(config.architecture + ".block_count", config.n_layers + 1);
  writer.set(config.architecture + ".nextn_predict_layers", int64_t{1});
  for (const TensorInfo& t : model->tensors()) writer.add_tensor(t.name, t.view);
  for (const TensorInfo& t : layer->tensors())
    writer.add_tensor(following + (is_of_mtp_block(t.name) ? t.name.substr(6) : names.at(t.name)), t.view);
  const std::string path = folder.path("with_mtp.gguf");
  EXPECT_TRUE(writer.write(path).ok());
  return path;
}

}  // namespace ibid::testing
