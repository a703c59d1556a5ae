// Pre-tokenizers by name against the reference: the pieces that it cuts 20,000 strings into, as digests that
// tools/make_split_digests.py wrote. Each family is tried by the stages of its name, and by its expressions as a
// tokenizer.json spells them. `make_split_digests.py show NAME I` shows the reference's pieces.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>

#include "conformance/tokenizer_corpus.h"
#include "conformance/tokenizer_kinds.h"
#include "text/tokenizer/splitter.h"

namespace ibid {
namespace {

namespace json = boost::json;
constexpr uint64_t kFirstHash = 0xCBF29CE484222325u;
constexpr size_t kQuickBlocks = 8;

const json::object& goldens() {
  static const json::value kAll = json::parse(read_file(kinds_folder() / "splits.json"));
  return kAll.as_object();
}

std::vector<std::string> pieces_of(std::string_view text, const std::vector<NextPiece>& stages) {
  std::vector<std::string> pieces;
  split_words(stages.data(), stages.size(), text.data(), text.data() + text.size(),
              [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

uint64_t hash_pieces(const std::vector<std::string>& pieces, uint64_t h) {
  for (const std::string& piece : pieces) {
    for (int k = 0; k < 4; ++k) h = (h ^ (piece.size() >> 8 * k & 255)) * 0x100000001B3u;
  }
  return h;
}

std::string hex(uint64_t h) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(h));
  return text;
}

void compare(const std::string& name, const std::vector<NextPiece>& stages, size_t n_blocks) {
  const json::object& golden = goldens().at("families").at(name).as_object();
  const std::string_view digests = golden.at("digests").as_string(), corners = golden.at("corners").as_string();
  const size_t n_per_block = static_cast<size_t>(goldens().at("block").as_int64());
  const auto seed = static_cast<uint64_t>(goldens().at("seed").as_int64());
  size_t n_wrong = 0;
  for (size_t block = 0; block < std::min(n_blocks, digests.size() / 16); ++block) {
    uint64_t h = kFirstHash;
    for (size_t i = block * n_per_block; i < (block + 1) * n_per_block; ++i) {
      const std::string text = corpus::string(seed, i);
      const std::vector<std::string> pieces = pieces_of(text, stages);
      std::string joined;
      for (const std::string& piece : pieces) joined += piece;
      ASSERT_EQ(joined, text) << name << ", string " << i;
      h = hash_pieces(pieces, h);
    }
    n_wrong += hex(h) != digests.substr(16 * block, 16);
    EXPECT_TRUE(n_wrong > 3 || hex(h) == digests.substr(16 * block, 16))
        << name << ": one of the strings " << block * n_per_block << " to " << (block + 1) * n_per_block - 1;
  }
  EXPECT_EQ(n_wrong, 0u) << name << ": blocks that are cut otherwise";
  size_t k = 0;
  for (const json::value& corner : goldens().at("corners").as_array()) {
    const std::string text(std::string_view(corner.as_string()));
    const std::vector<std::string> pieces = pieces_of(text, stages);
    EXPECT_EQ(hex(hash_pieces(pieces, kFirstHash)), corners.substr(16 * k, 16))
        << name << ", corner " << k << ", " << text << ": " << ::testing::PrintToString(pieces);
    ++k;
  }
}

void compare_all(size_t n_blocks) {
  for (const auto& [name, golden] : goldens().at("families").as_object()) {
    const SplitFamily* family = find_split_family(std::string(name));
    ASSERT_NE(family, nullptr) << name;
    compare(std::string(name), family->stages, n_blocks);
  }
}

TEST(TokenizerSplits, NamesCutAsTheReference) { compare_all(kQuickBlocks); }
TEST(SlowTokenizerSplits, NamesCutAsTheReferenceOnTwentyThousandStrings) { compare_all(SIZE_MAX); }

TEST(TokenizerSplits, ExpressionsOfAFolderAreRecognised) {
  for (const auto& [key, golden] : goldens().at("families").as_object()) {
    const std::string name(key);
    std::vector<NextPiece> stages;
    for (const json::value& pattern : golden.at("patterns").as_array()) {
      std::span<const NextPiece> known = find_known_pattern(std::string_view(pattern.as_string()));
      EXPECT_TRUE(!known.empty() || name == "afmoe") << name << ": " << pattern;  // its first one is our own spelling
      stages.insert(stages.end(), known.begin(), known.end());
    }
    if (name != "afmoe") compare(name, stages, 2);
  }
}

// tokenizer.ggml.pre as llama.cpp knows it, but "whitespace", whose files are embedding models of a kind of their own.
TEST(TokenizerSplits, TheFieldsNamesAreKnown) {
  for (std::string_view name : {"a.x-4.0",
                                "afmoe",
                                "bailingmoe",
                                "bailingmoe2",
                                "bloom",
                                "chameleon",
                                "chatglm-bpe",
                                "codeshell",
                                "cohere2moe",
                                "command-r",
                                "dbrx",
                                "deepseek-coder",
                                "deepseek-llm",
                                "deepseek-r1-qwen",
                                "deepseek-v3",
                                "default",
                                "exaone",
                                "exaone-moe",
                                "exaone4",
                                "f2llmv2",
                                "falcon",
                                "falcon-h1",
                                "falcon3",
                                "gemma4",
                                "gigachat",
                                "glm4",
                                "glm5",
                                "gpt-2",
                                "gpt-4o",
                                "gpt3-finnish",
                                "granite-docling",
                                "granite-embed-multi-311m",
                                "granite-embed-multi-97m",
                                "grok-2",
                                "hunyuan",
                                "hunyuan-dense",
                                "hy_v4",
                                "jais",
                                "jais-2",
                                "jina-de",
                                "jina-es",
                                "jina-v1-en",
                                "jina-v2-code",
                                "jina-v2-de",
                                "jina-v2-es",
                                "jina-v5-nano",
                                "joyai-llm",
                                "k2-horizon",
                                "kanana2",
                                "kimi-k2",
                                "kormo",
                                "laguna",
                                "lfm2",
                                "llada-moe",
                                "llama-bpe",
                                "llama-v3",
                                "llama3",
                                "llama4",
                                "megrez",
                                "mellum",
                                "mellum2",
                                "midm-2.0",
                                "minerva-7b",
                                "minicpm5",
                                "minimax-m2",
                                "modern-bert",
                                "mpt",
                                "olmo",
                                "phi-2",
                                "pixtral",
                                "poro-chat",
                                "qwen2",
                                "qwen35",
                                "refact",
                                "roberta-bpe",
                                "sarvam-moe",
                                "seed-coder",
                                "smaug-bpe",
                                "smollm",
                                "solar-open",
                                "spark2_5",
                                "stablelm2",
                                "starcoder",
                                "superbpe",
                                "talkie",
                                "tekken",
                                "tiny_aya",
                                "trillion",
                                "ufakzeka",
                                "viking",
                                "youtu"}) {
    EXPECT_NE(find_split_family(name), nullptr) << name;
  }
  EXPECT_EQ(find_split_family("whitespace"), nullptr);
}

}  // namespace
}  // namespace ibid
