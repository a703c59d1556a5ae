// Every kind of tokenizer against the reference: the kinds, models and digests that tools/make_tokenizers.py wrote. A
// wrong string is shown with our ids; `make_tokenizers.py show KIND INDEX` shows the reference's.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <sstream>

#include "conformance/tokenizer_corpus.h"
#include "conformance/tokenizer_kinds.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid {
namespace {

constexpr size_t kQuickStrings = 1500;

uint64_t hash_ids(const std::vector<TokenId>& ids, uint64_t h = 0xCBF29CE484222325u) {
  for (TokenId id : ids) {
    for (int k = 0; k < 4; ++k) h = (h ^ (static_cast<uint32_t>(raw(id)) >> 8 * k & 255)) * 0x100000001B3u;
  }
  return h;
}

struct Digest {
  uint64_t all = 0;
  size_t n_strings = 0;
  uint64_t seed = 0;
  std::string characters;  // two a string
};

Digest read_digest(const std::string& kind) {
  std::istringstream text(read_file(kinds_folder() / "digests" / (kind + ".txt")));
  Digest d;
  text >> std::hex >> d.all >> std::dec >> d.n_strings >> d.seed;
  for (std::string line; text >> line;) d.characters += line;
  return d;
}

std::string short_hash(const std::vector<TokenId>& ids) {
  static constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint64_t h = hash_ids(ids);
  h ^= h >> 32;
  return {kAlphabet[h >> 6 & 63], kAlphabet[h & 63]};
}

void compare(const std::string& kind, size_t n_strings) {
  auto made = Tokenizer::from_json(compose_kind(kind));
  ASSERT_TRUE(made.ok()) << kind << ": " << made.error().message;
  const Tokenizer& tokenizer = **made;
  Digest digest = read_digest(kind);
  ASSERT_EQ(digest.characters.size(), 2 * digest.n_strings);
  uint64_t all = 0xCBF29CE484222325u;
  size_t n_wrong = 0;
  std::vector<TokenId> ids;
  for (size_t i = 0; i < std::min(n_strings, digest.n_strings); ++i) {
    std::string text = corpus::string(digest.seed, i);
    ids.clear();
    tokenizer.encode(text, {.add_special = i % 2 == 1, .parse_special = i % 2 == 1}, ids);
    all = hash_ids(ids, all);
    if (short_hash(ids) == digest.characters.substr(2 * i, 2)) continue;
    if (++n_wrong > 3) continue;
    std::string shown;
    for (TokenId id : ids) shown += " " + std::to_string(raw(id));
    ADD_FAILURE() << kind << ", string " << i << ": " << text << "\nours:" << shown;
  }
  EXPECT_EQ(n_wrong, 0u) << kind << ": strings with other ids";
  if (n_strings >= digest.n_strings && n_wrong == 0) {
    EXPECT_EQ(all, digest.all) << kind;
  }
}

// gemma-4's GGUF carries the same vocabulary and merges as its tokenizer.json, whose kind is compared with the
// reference.
TEST(TokenizerKindsByName, Gemma4CutsAsItsTokenizerJson) {
  const std::string text = compose_kind("gemma");
  auto folder = Tokenizer::from_json(text);
  ASSERT_TRUE(folder.ok()) << folder.error().message;
  Vocabulary v = (*folder)->vocabulary();
  v.pre_tokenizer = "gemma4";
  v.add_space_prefix = false, v.add_bos = true, v.bos = TokenId{1};
  v.scores.clear();
  const boost::json::value parsed = boost::json::parse(text);
  for (const boost::json::value& merge : parsed.at("model").at("merges").as_array()) {
    const boost::json::array* pair = merge.if_array();
    v.merges.push_back(pair ? std::string(pair->at(0).as_string()) + " " + std::string(pair->at(1).as_string())
                            : std::string(merge.as_string()));
  }
  auto file = Tokenizer::from_vocabulary(std::move(v));
  ASSERT_TRUE(file.ok()) << file.error().message;
  for (size_t i = 0; i < kQuickStrings; ++i) {
    const std::string string = corpus::string(4, i);
    const EncodeOptions options = {.add_special = i % 2 == 1, .parse_special = i % 2 == 1};
    const std::vector<TokenId> ids = (*file)->encode(string, options);
    ASSERT_EQ(ids, (*folder)->encode(string, options)) << i << ": " << string;
    ASSERT_EQ((*file)->decode(ids, true), (*folder)->decode(ids, true)) << i << ": " << string;
  }
}

class TokenizerKinds : public ::testing::TestWithParam<std::string> {};
TEST_P(TokenizerKinds, GiveTheReferencesIds) { compare(GetParam(), kQuickStrings); }
INSTANTIATE_TEST_SUITE_P(All, TokenizerKinds, ::testing::ValuesIn(tokenizer_kinds()));

TEST(SlowTokenizerKinds, GiveTheReferencesIdsOnTwentyThousandStrings) {
  for (const std::string& kind : tokenizer_kinds()) compare(kind, SIZE_MAX);
}

}  // namespace
}  // namespace ibid
