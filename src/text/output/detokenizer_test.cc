#include "text/output/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"

namespace ibid {
namespace {

// A vocabulary of the 256 bytes, a few words that cut code points, and a control token.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(bool strips = false, std::vector<std::string> words = {}) : strips_(strips) {
    for (int b = 0; b < 256; ++b) bytes_.push_back(std::string(1, static_cast<char>(b)));
    for (std::string& word : words) bytes_.push_back(std::move(word));
  }
  static constexpr TokenId kControl = TokenId{100000};

  void encode(std::string_view, const EncodeOptions&, std::vector<TokenId>&) const override {}
  std::string_view token_bytes(TokenId id, bool special) const override {
    if (id == kControl) return special ? std::string_view("<|end|>") : std::string_view();
    return raw(id) >= 0 && raw(id) < static_cast<int>(bytes_.size()) ? std::string_view(bytes_[raw(id)]) : "";
  }
  bool strips_leading_space() const override { return strips_; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  std::vector<std::string> bytes_;
  bool strips_;
  Vocabulary vocabulary_;
};

std::string mend(std::string_view bytes) {
  Utf8Mender mender;
  std::string out;
  mender.push(bytes, out);
  mender.finish(out);
  return out;
}

std::string marks(int n) {
  std::string s;
  while (n-- > 0) s += utf8::kReplacementBytes;
  return s;
}

std::string detokenize(const std::vector<int>& ids, DetokenizerOptions options = {}, bool strips = false) {
  Detokenizer detokenizer(std::make_shared<ByteTokenizer>(strips, std::vector<std::string>{" the", " "}), options);
  std::string out;
  for (int id : ids) detokenizer.push(TokenId{id}, out);
  detokenizer.finish(out);
  return out;
}

TEST(Utf8Mender, ReplacesMaximalSubpartsAsPythonDoes) {
  EXPECT_EQ(mend("a\x80z"), "a" + marks(1) + "z");
  EXPECT_EQ(mend("\xC0\xAF"), marks(2));              // overlong
  EXPECT_EQ(mend("\xE0\x80\x80"), marks(3));          // overlong
  EXPECT_EQ(mend("\xED\xA0\x80"), marks(3));          // a surrogate
  EXPECT_EQ(mend("\xF4\x90\x80\x80"), marks(4));      // above U+10FFFF
  EXPECT_EQ(mend("\xF8\x88\x80\x80\x80"), marks(5));  // no such lead
  EXPECT_EQ(mend("\xE2\x82"
                 "a"),
            marks(1) + "a");                  // cut short by another
  EXPECT_EQ(mend("\xF0\x9F\x98"), marks(1));  // cut short by the end
  EXPECT_EQ(mend("\xE2\x82\xC3\xA9"), marks(1) + "é");
  EXPECT_EQ(mend("\xF0\x9F\xF0\x9F\x98\x80"), marks(1) + "😀");
}

TEST(Utf8Mender, KeepsEveryCodePoint) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string s;
    if (c < 0x80) {
      s += static_cast<char>(c);
    } else {
      if (c < 0x800) {
        s += static_cast<char>(0xC0 | c >> 6);
      } else {
        if (c < 0x10000) {
          s += static_cast<char>(0xE0 | c >> 12);
        } else {
          s += static_cast<char>(0xF0 | c >> 18);
          s += static_cast<char>(0x80 | (c >> 12 & 63));
        }
        s += static_cast<char>(0x80 | (c >> 6 & 63));
      }
      s += static_cast<char>(0x80 | (c & 63));
    }
    ASSERT_EQ(mend(s), s) << c;
  }
}

TEST(Detokenizer, NeverEmitsHalfACodePoint) {
  Detokenizer detokenizer(std::make_shared<ByteTokenizer>());
  std::string out;
  for (int byte : {0xF0, 0x9F, 0x98}) {
    detokenizer.push(TokenId{byte}, out);
    EXPECT_EQ(out, "");
    EXPECT_TRUE(detokenizer.pending());
  }
  detokenizer.push(TokenId{0x80}, out);
  EXPECT_EQ(out, "😀");
  EXPECT_FALSE(detokenizer.pending());
}

TEST(Detokenizer, InvalidBytesEndNothing) {
  EXPECT_EQ(detokenize({'a', 0xFF, 'b', 0xE2, 'c', 0x82}), "a" + marks(1) + "b" + marks(1) + "c" + marks(1));
}

TEST(Detokenizer, ShowsControlTokensWhereAsked) {
  EXPECT_EQ(detokenize({'a', raw(ByteTokenizer::kControl)}), "a");
  EXPECT_EQ(detokenize({'a', raw(ByteTokenizer::kControl)}, {.show_special = true}), "a<|end|>");
}

TEST(Detokenizer, DropsTheDummyPrefixOnlyAtTheVeryStart) {
  EXPECT_EQ(detokenize({256, 256}, {}, true), "the the");
  EXPECT_EQ(detokenize({257, 256}, {}, true), " the");  // one space, not all
  EXPECT_EQ(detokenize({256, 256}, {.continues_text = true}, true), " the the");
  EXPECT_EQ(detokenize({256, 256}, {}, false), " the the");
  EXPECT_EQ(detokenize({raw(ByteTokenizer::kControl), 256}, {}, true), "the");
  EXPECT_EQ(detokenize({raw(ByteTokenizer::kControl), 256}, {.show_special = true}, true), "<|end|> the");
}

TEST(Detokenizer, SkipsIdsOutsideTheVocabulary) { EXPECT_EQ(detokenize({-5, 'x', 1 << 30}), "x"); }

TEST(Detokenizer, EverySlicingGivesTheWhole) {
  std::mt19937 random(7);
  const std::vector<std::string> parts = {"é", "日本", "😀", "a", "\xFF", "\xE2\x82", "\xF0\x9F", "\x80", "\xED\xA0"};
  for (int round = 0; round < 100000; ++round) {
    std::string bytes;
    for (unsigned n = random() % 8; n > 0; --n) bytes += parts[random() % parts.size()];
    std::string want = mend(bytes);
    std::vector<std::string> words;  // the same bytes, cut at random into tokens
    for (size_t at = 0; at < bytes.size();) {
      size_t n = 1 + random() % 4;
      words.push_back(bytes.substr(at, n));
      at += n;
    }
    Utf8Mender mender;
    std::string got;
    for (const std::string& word : words) {
      mender.push(word, got);
      ASSERT_TRUE(utf8::is_valid(got));
    }
    mender.finish(got);
    ASSERT_EQ(got, want) << "round " << round;
  }
}

}  // namespace
}  // namespace ibid
