// Every kind of tokenizer against the reference: the kinds, models and digests that tools/make_tokenizers.py wrote. A
// wrong string is shown with our ids; `make_tokenizers.py show KIND INDEX` shows the reference's.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "conformance/tokenizer_corpus.h"
#include "text/tokenizer.h"

namespace ibid {
namespace {

namespace fs = std::filesystem;
const fs::path kFolder = fs::path(IBID_SOURCE_DIR) / "tests/conformance/tokenizers";
constexpr size_t kQuickStrings = 1500;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream all;
  all << file.rdbuf();
  return all.str();
}

// A kind with its models in place of their names.
std::string compose(const std::string& kind) {
  std::string text = read(kFolder / "kinds" / (kind + ".json"));
  for (const fs::directory_entry& model : fs::directory_iterator(kFolder / "models")) {
    std::string name = "\"@" + model.path().stem().string() + "\"";
    if (size_t at = text.find(name); at != text.npos) text.replace(at, name.size(), read(model.path()));
  }
  return text;
}

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
  std::istringstream text(read(kFolder / "digests" / (kind + ".txt")));
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

std::vector<std::string> kinds() {
  std::vector<std::string> names;
  for (const fs::directory_entry& kind : fs::directory_iterator(kFolder / "kinds")) names.push_back(kind.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

void compare(const std::string& kind, size_t n_strings) {
  auto made = Tokenizer::from_json(compose(kind));
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

class TokenizerKinds : public testing::TestWithParam<std::string> {};
TEST_P(TokenizerKinds, GiveTheReferencesIds) { compare(GetParam(), kQuickStrings); }
INSTANTIATE_TEST_SUITE_P(All, TokenizerKinds, testing::ValuesIn(kinds()));

TEST(SlowTokenizerKinds, GiveTheReferencesIdsOnTwentyThousandStrings) {
  for (const std::string& kind : kinds()) compare(kind, SIZE_MAX);
}

}  // namespace
}  // namespace ibid
