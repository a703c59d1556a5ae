// Towers whose configuration lies are refused by a sentence that names what is wrong, and never crash.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "model/vision/tower.h"
#include "source_paths.h"
#include "temp_folder.h"

namespace ibid {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

// The golden folder `name` with another configuration.
Result<std::unique_ptr<Tower>> load(const std::string& name, const std::string& config) {
  const TempFolder folder;
  const std::filesystem::path golden = source_dir() + "/tests/golden/" + name;
  std::ofstream(folder.path() + "/config.json") << config;
  std::filesystem::create_symlink(golden / "model.safetensors", folder.path() + "/model.safetensors");
  ASSIGN_OR_RETURN(ModelFile file, ModelFile::open(folder.path()));
  ThreadTeam team(1);
  Stream stream(team);
  return Tower::load(std::make_shared<const ModelFile>(std::move(file)), "digest", 256, stream);
}

std::string with(std::string config, const std::string& key, const std::string& value) {
  const size_t vision = config.find("\"vision_config\"");
  size_t at = config.find('"' + key + '"', vision);
  if (at == std::string::npos) at = config.find('"' + key + '"');
  EXPECT_NE(at, std::string::npos) << key;
  const size_t begin = config.find(':', at) + 1;
  size_t end = config[config.find_first_not_of(" \n", begin)] == '[' ? config.find(']', begin) + 1
                                                                     : config.find_first_of(",\n}", begin);
  return config.replace(begin, end - begin, ' ' + value);
}

TEST(BadTowers, AreRefusedByName) {
  struct Case {
    const char *model, *key, *value, *words;
  };
  const Case cases[] = {{"qwen3vl_vision", "depth", "0", "depth"},
                        {"qwen3vl_vision", "depth", "7", "visual.blocks"},
                        {"qwen3vl_vision", "hidden_size", "1099511627776", "hidden_size"},
                        {"qwen3vl_vision", "hidden_size", "64", "of 6144 numbers"},
                        {"qwen3vl_vision", "num_heads", "3", "heads"},
                        {"qwen3vl_vision", "num_heads", "0", "num_heads"},
                        {"qwen3vl_vision", "patch_size", "5", "numbers"},
                        {"qwen3vl_vision", "patch_size", "-4", "patch_size"},
                        {"qwen3vl_vision", "temporal_patch_size", "1", "numbers"},
                        {"qwen3vl_vision", "spatial_merge_size", "0", "spatial_merge_size"},
                        {"qwen3vl_vision", "spatial_merge_size", "4", "shape"},
                        {"qwen3vl_vision", "num_position_embeddings", "48", "square"},
                        {"qwen3vl_vision", "num_position_embeddings", "\"x\"", "num_position_embeddings"},
                        {"qwen3vl_vision", "hidden_act", "\"relu\"", "relu"},
                        {"qwen3vl_vision", "deepstack_visual_indexes", "[1, 0]", "layers"},
                        {"qwen3vl_vision", "deepstack_visual_indexes", "[0, 99]", "layers"},
                        {"qwen3vl_vision", "out_hidden_size", "48", "shape"},
                        {"gemma3_vision", "mm_tokens_per_image", "8", "square"},
                        {"gemma3_vision", "mm_tokens_per_image", "25", "cells"},
                        {"gemma3_vision", "image_size", "56", "cells"},
                        {"gemma3_vision", "image_size", "36", "shape"},
                        {"gemma3_vision", "patch_size", "512", "cells"},
                        {"gemma3_vision", "num_attention_heads", "32", "heads"},
                        {"gemma3_vision", "layer_norm_eps", "0.0", "eps"},
                        {"gemma4_vision", "num_hidden_layers", "9", "vision_tower.encoder.layers.3"},
                        {"gemma4_vision", "num_key_value_heads", "1", "heads"},
                        {"gemma4_vision", "head_dim", "8", "heads"},
                        {"gemma4_vision", "intermediate_size", "49", "shape"},
                        {"gemma4_vision", "patch_size", "5", "numbers"},
                        {"gemma4_vision", "position_embedding_size", "17", "shape"},
                        {"gemma4_vision", "position_embedding_size", "0", "position_embedding_size"},
                        {"gemma4_vision", "pooling_kernel_size", "9", "pooling_kernel_size"},
                        {"gemma4_vision", "hidden_activation", "\"relu\"", "relu"},
                        {"gemma4_vision", "rms_norm_eps", "2.0", "eps"},
                        {"gemma4_vision", "standardize", "true", "std_bias"},
                        {"gemma4_large_vision", "use_clipped_linears", "true", "input_min"}};
  for (const Case& c : cases) {
    const std::string config = text_of(source_dir() + "/tests/golden/" + c.model + "/config.json");
    const auto tower = load(c.model, with(config, c.key, c.value));
    ASSERT_FALSE(tower.ok()) << c.key << " " << c.value;
    EXPECT_NE(tower.error().message.find(c.words), std::string::npos) << c.key << ": " << tower.error().message;
  }
}

TEST(BadTowers, ConfigurationsOfRandomBytesAreReadOrRefused) {
  const std::string config = text_of(source_dir() + "/tests/golden/qwen3vl_vision/config.json");
  std::mt19937_64 random(7);
  int n_read = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string changed = config;
    for (uint64_t n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % changed.size();
      const bool is_digit = changed[at] >= '0' && changed[at] <= '9';
      changed[at] = is_digit ? static_cast<char>('0' + random() % 10) : static_cast<char>(32 + random() % 95);
    }
    n_read += load("qwen3vl_vision", changed).ok();
  }
  EXPECT_GT(n_read, 0);
  EXPECT_LT(n_read, 1000);
}

}  // namespace
}  // namespace ibid
