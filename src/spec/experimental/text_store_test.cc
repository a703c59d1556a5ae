#include "spec/experimental/text_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>

#include "spec/experimental/text_store_format.h"
#include "temp_folder.h"

namespace ibid {
namespace {

using Ids = std::vector<TokenId>;

Vocabulary vocabulary(int32_t n) {
  Vocabulary out;
  for (int32_t i = 0; i < n; ++i) out.tokens.push_back("t" + std::to_string(i));
  return out;
}
Ids ids(std::string_view text) {
  Ids out;
  for (const char c : text) out.push_back(TokenId{c});
  return out;
}

class TextStores : public ::testing::Test {
 protected:
  std::shared_ptr<const TextStore> store_of(const std::vector<Ids>& texts, int32_t vocab_size = 128) {
    TextStoreWriter writer(1 << 20);
    for (const Ids& text : texts) writer.add(text), writer.end_text();
    EXPECT_TRUE(writer.write(path_, vocabulary(vocab_size), "a model").ok());
    return TextStore::open(path_, vocabulary(vocab_size)).value();
  }
  std::string bytes() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string error_of(const std::string& content, int32_t vocab_size = 128) {
    std::ofstream(path_, std::ios::binary) << content;
    auto opened = TextStore::open(path_, vocabulary(vocab_size));
    return opened ? "" : opened.error().message;
  }
  // With the digest that a forger would write.
  static std::string signed_again(std::string content) {
    const auto bytes = std::as_bytes(std::span(content));
    const Sha256Digest digest = sha256({bytes.first(kHeadDigested), bytes.subspan(sizeof(TextStoreHead))});
    std::memcpy(content.data() + kHeadDigested, digest.data(), digest.size());
    return content;
  }
  TempFolder folder_;
  std::string path_ = folder_.path("texts.store");
};

struct Found {
  int32_t len = 0;
  std::vector<int64_t> places;  // ascending
};

// By exhaustive search over the texts.
Found found_by_brute_force(const Ids& all, const Ids& text) {
  Found out;
  for (size_t place = 1; place < all.size(); ++place) {
    int32_t len = 0;
    while (len < TextStore::kMaxMatch && static_cast<size_t>(len) < std::min(place, text.size()) &&
           all[place - 1 - static_cast<size_t>(len)] == text[text.size() - 1 - static_cast<size_t>(len)])
      ++len;
    if (len == 0 || len < out.len) continue;
    if (len > out.len) out = {len, {}};
    out.places.push_back(static_cast<int64_t>(place));
  }
  return out;
}

TEST_F(TextStores, FindTheLongestEndOfAnySequenceAndAllItsPlaces) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 60; ++round) {
    const auto up_to = [&](uint64_t n) { return static_cast<int32_t>(random() % n); };
    const int32_t n_letters = 1 + up_to(4);
    std::vector<Ids> texts(static_cast<size_t>(1 + up_to(5)));
    Ids all;
    for (Ids& text : texts) {
      for (int32_t n = 1 + up_to(120); n > 0; --n) text.push_back(TokenId{up_to(static_cast<uint64_t>(n_letters))});
      all.insert(all.end(), text.begin(), text.end());
      all.push_back(TextStore::kTextEnd);
    }
    const auto store = store_of(texts, 8);
    ASSERT_EQ(store->n_tokens(), static_cast<int64_t>(all.size()));
    Ids text;
    for (int i = 0; i < 150; ++i) {
      // Sometimes as one of the store's goes, so that matches become long; now and then a token that is nowhere.
      const size_t at = text.empty() ? 0 : static_cast<size_t>(up_to(all.size()));
      text.push_back(i % 37 == 36 ? TokenId{7} : all[at] == TextStore::kTextEnd || i % 3 ? TokenId{up_to(5)} : all[at]);
      if (i % 50 == 20) text.insert(text.end(), texts[0].begin(), texts[0].end());
      const Found expected = found_by_brute_force(all, text);
      const TextStore::Match match = store->find(text);
      ASSERT_EQ(match.len, expected.len);
      ASSERT_EQ(match.n, static_cast<int64_t>(expected.places.size()));
      std::vector<int64_t> places;
      for (int64_t j = 0; j < match.n; ++j) places.push_back(store->place(match.first + j));
      std::ranges::sort(places);
      ASSERT_EQ(places, expected.places);
    }
  }
}

TEST_F(TextStores, DraftWhatFollowsMostOften) {
  const auto store = store_of({ids("the cat sat"), ids("the cat ran"), ids("the cat ran"), ids("a dog")});
  StoreDraft draft;
  store->draft(ids("see the cat "), 3, draft);
  EXPECT_EQ(draft.match_len, 8);
  EXPECT_EQ(draft.tokens, ids("ran"));
  EXPECT_NEAR(draft.share[0], 2.0 / 3, 1e-6);
  EXPECT_EQ(draft.share[1], 1);
  store->draft(ids("see the cat ran"), 3, draft);  // nothing follows
  EXPECT_EQ(draft.match_len, 0);
  EXPECT_TRUE(draft.tokens.empty());
  store->draft(ids("XYZ"), 3, draft);
  EXPECT_TRUE(draft.tokens.empty());
  store->draft({}, 3, draft);
  EXPECT_TRUE(draft.tokens.empty());
}

// A match never spans two texts, and a draft ends with its own.
TEST_F(TextStores, SeparateTheirTexts) {
  const auto store = store_of({ids("xyz"), ids("abcd")});
  StoreDraft draft;
  store->draft(ids("xy"), 9, draft);
  EXPECT_EQ(draft.tokens, ids("z"));
  store->draft(ids("xyza"), 9, draft);
  EXPECT_EQ(draft.match_len, 1);
  EXPECT_EQ(draft.tokens, ids("bcd"));
}

TEST_F(TextStores, TakeNoMoreTokensThanTheyMay) {
  TextStoreWriter writer(10);
  EXPECT_TRUE(writer.add(ids("abcd")));
  writer.end_text();
  EXPECT_FALSE(writer.add(ids("efghij")));
  EXPECT_FALSE(writer.add(ids("k")));
  writer.end_text();
  EXPECT_EQ(writer.n_tokens(), 10);
  ASSERT_TRUE(writer.write(path_, vocabulary(128), "a model").ok());
  EXPECT_EQ(TextStore::open(path_, vocabulary(128)).value()->n_tokens(), 10);
}

TEST_F(TextStores, OfNothingAreNotMade) {
  TextStoreWriter writer(10);
  writer.end_text();
  EXPECT_FALSE(writer.write(path_, vocabulary(128), "a model").ok());
  writer.add(ids("z"));
  EXPECT_FALSE(writer.write(path_, vocabulary(20), "a model").ok()) << "z is no id of that vocabulary";
}

TEST_F(TextStores, OfAnotherVocabularyAreRefusedByItsName) {
  store_of({ids("abc")});
  const std::string content = bytes();
  EXPECT_NE(error_of(content, 129).find("\"a model\", 128 tokens"), std::string::npos) << error_of(content, 129);
  Vocabulary other = vocabulary(128);
  std::swap(other.tokens[3], other.tokens[4]);
  const auto opened = TextStore::open(path_, other);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().kind, ErrorKind::kUnsupported);
}

// Any bit of a file, any length of it, and what is none at all.
TEST_F(TextStores, RefuseFilesThatAreNotWhole) {
  store_of({ids("the cat sat on the mat"), ids("another text")});
  const std::string whole = bytes();
  EXPECT_EQ(error_of(whole), "");
  for (size_t n = 0; n < whole.size(); n += n < 200 ? 1 : 7) EXPECT_NE(error_of(whole.substr(0, n)), "") << n;
  EXPECT_NE(error_of(whole + "x"), "");
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ (1 << (i % 8)));
    EXPECT_NE(error_of(flipped), "") << "byte " << i;
  }
  EXPECT_NE(error_of("").find("is no store of texts"), std::string::npos);
  EXPECT_NE(error_of("GGUF and so on").find("is no store of texts"), std::string::npos);
  EXPECT_FALSE(TextStore::open(folder_.path("nothing"), vocabulary(128)).ok());
  EXPECT_FALSE(TextStore::open(folder_.path("."), vocabulary(128)).ok());
}

// Whoever forges a file makes its digest too: ids, places and sizes are checked for themselves.
TEST_F(TextStores, RefuseForgedOnes) {
  store_of({ids("the cat sat on the mat")});
  const std::string whole = bytes();
  const size_t tokens = sizeof(TextStoreHead), n = (whole.size() - tokens) / 8, places = tokens + 4 * n;
  const auto with = [&](size_t at, uint32_t value) {
    std::string out = whole;
    std::memcpy(out.data() + at, &value, sizeof value);
    return signed_again(out);
  };
  EXPECT_EQ(error_of(signed_again(whole)), "");
  EXPECT_NE(error_of(with(tokens, 128)).find("is no id"), std::string::npos);
  EXPECT_NE(error_of(with(tokens + 4, static_cast<uint32_t>(-2))).find("is no id"), std::string::npos);
  EXPECT_NE(error_of(with(places, static_cast<uint32_t>(n))).find("after its end"), std::string::npos);
  EXPECT_NE(error_of(with(8, 2)).find("version 2"), std::string::npos);
  EXPECT_NE(error_of(with(16, 0x20000001)), "");  // tokens, whose bytes would wrap
  EXPECT_NE(error_of(with(20, 0x20000000)), "");
  EXPECT_NE(error_of(with(24, 65)).find("name has no end"), std::string::npos);
  // Places in any order are only worse drafts.
  const uint32_t same = 3;
  std::string unordered = whole;
  for (size_t i = 0; i < n; ++i) std::memcpy(unordered.data() + places + 4 * i, &same, sizeof same);
  EXPECT_EQ(error_of(signed_again(unordered)), "");
}

// Another program writes into the file while it is mapped: drafts may be of anything, and nothing else happens.
TEST_F(TextStores, WhoseFilesAreWrittenOverDraftWithinTheirBounds) {
  const auto store = store_of({ids("the cat sat on the mat, the cat sat in the hat")});
  std::mt19937 random(5);
  const auto size = static_cast<std::streamoff>(store->bytes());
  for (int round = 0; round < 300; ++round) {
    {
      std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
      for (int i = 0; i < 8; ++i) {
        const uint32_t value = random() % 3 == 0 ? random() : random() % 200;
        file.seekp(static_cast<std::streamoff>(sizeof(TextStoreHead)) +
                   static_cast<std::streamoff>(random() % static_cast<uint32_t>((size - 160) / 4)) * 4);
        file.write(reinterpret_cast<const char*>(&value), sizeof value);
      }
    }
    StoreDraft draft;
    store->draft(ids("the cat sat"), 8, draft);
    for (const TokenId token : draft.tokens) {
      ASSERT_GE(raw(token), 0);
      ASSERT_LT(raw(token), 128);
    }
    ASSERT_EQ(draft.tokens.size(), draft.share.size());
  }
}

}  // namespace
}  // namespace ibid
