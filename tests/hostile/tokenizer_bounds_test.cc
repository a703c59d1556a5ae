// Small files that ask for much: each is refused by a sentence, or read and used within a second of the processor's
// time. Every case here once took minutes or memory without end.
#include <gtest/gtest.h>

#include <string>

#include "hostile/limits.h"
#include "text/tokenizer/token_map.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid {
namespace {

std::string sequence(const char* key, const std::string& step, size_t n) {
  std::string all = R"({"type":"Sequence",")" + std::string(key) + "\":[" + step;
  for (size_t i = 1; i < n; ++i) all += "," + step;
  return all + "]}";
}
std::string file_with(const std::string& parts, const std::string& more_vocab = "") {
  return R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"!":3)" + more_vocab + R"(},"merges":["a b"]})" + parts +
         "}";
}
std::string split_on(const std::string& expression) {
  return R"({"type":"Split","pattern":{"Regex":")" + expression + R"("},"behavior":"Isolated","invert":false})";
}

void expect_refused(const std::string& json, const char* says) {
  ProcessorTime time(says);
  auto made = Tokenizer::from_json(json);
  ASSERT_FALSE(made.ok()) << says;
  EXPECT_NE(made.error().message.find(says), std::string::npos) << made.error().message;
}

void expect_encoded_in_time(const char* name, const std::string& json, const std::string& text) {
  ProcessorTime time(name);
  auto made = Tokenizer::from_json(json);
  ASSERT_TRUE(made.ok()) << name << ": " << made.error().message;
  std::vector<TokenId> ids;
  (*made)->encode(text, {}, ids);
}

TEST(TokenizerBounds, ATokenOfMegabytesOfSpaceMarksIsReadInTime) {
  Vocabulary v;
  v.model = VocabularyModel::kSentencePieceBpe;
  v.tokens = {"<unk>", "<s>", "</s>", "a", repeated("\u2581", 1'000'000)};
  v.unknown = TokenId{0};
  ProcessorTime time("3 MB of U+2581");
  auto made = Tokenizer::from_vocabulary(std::move(v));
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ((*made)->token_bytes(TokenId{4}).size(), 1'000'000u);
}

TEST(TokenizerBounds, ADecoderThatStripsAMegabyteOneByOneIsReadInTime) {
  std::string decoder = R"(,"decoder":{"type":"Strip","content":"x","start":1000000000,"stop":1000000000})";
  expect_encoded_in_time("strip", file_with(decoder, ",\"" + std::string(1'000'000, 'x') + "\":4"), "a");
}

TEST(TokenizerBounds, ADecoderThatMakesTokensGrowWithoutEndIsRefused) {
  std::string twice = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  expect_refused(file_with(",\"decoder\":" + sequence("decoders", twice, 24)), "times as long");
  std::string much = R"({"type":"Replace","pattern":{"String":"a"},"content":")" + std::string(1000, 'a') + "\"}";
  expect_refused(file_with(",\"decoder\":" + sequence("decoders", much, 2)), "times as long");
  std::string some = R"({"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"})";
  expect_refused(file_with(",\"decoder\":" + some, ",\"" + std::string(100'000, 'a') + "\":4"), "bytes of text");
}

TEST(TokenizerBounds, PreTokenizersThatMakeATextGrowWithoutEndAreRefused) {
  std::string spaces = R"({"type":"Metaspace","replacement":"    ","prepend_scheme":"never","split":false})";
  expect_refused(file_with(",\"pre_tokenizer\":" + spaces), "one character");
  // Each cuts before its own mark and prepends it to the other's pieces.
  std::string x = R"({"type":"Metaspace","replacement":"x","prepend_scheme":"always","split":true})";
  std::string y = R"({"type":"Metaspace","replacement":"y","prepend_scheme":"always","split":true})";
  expect_refused(file_with(",\"pre_tokenizer\":" + sequence("pretokenizers", x + "," + y, 12)), "times as long");
}

TEST(TokenizerBounds, LongTextsToLookForAreRefused) {
  std::string long_text(100'000, 'a');
  for (const char* part : {"normalizer", "decoder"}) {
    expect_refused(file_with(",\"" + std::string(part) + R"(":{"type":"Replace","pattern":{"String":")" + long_text +
                             R"(b"},"content":"x"})"),
                   "at most 1024");
  }
  expect_refused(file_with(R"(,"pre_tokenizer":{"type":"Split","pattern":{"String":")" + long_text +
                           R"(b"},"behavior":"Isolated","invert":false})"),
                 "at most 1024");
}

TEST(TokenizerBounds, LongAffixesOfPiecesAreRefused) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    std::string json = R"({"model":{"type":"BPE",")" + std::string(key) + "\":\"" + std::string(100'000, '#') +
                       R"(","vocab":{"a":0},"merges":[]}})";
    expect_refused(json, key);
  }
}

TEST(TokenizerBounds, AWordPieceModelOfHugeTokensReadsLongWordsInTime) {
  std::string json = R"({"model":{"type":"WordPiece","unk_token":"a","max_input_chars_per_word":1000000000,"vocab":)"
                     R"({"a":0,"##a":1,")" +
                     std::string(200'000, 'b') + "\":2}}}";
  expect_encoded_in_time("word pieces", json, std::string(kMeasured ? 20'000 : 2'000, 'a'));
}

TEST(TokenizerBounds, AnExpressionThatExplodesAgainAndAgainHasOneBudgetForAText) {
  std::string text = repeated(std::string(19, 'a') + "!", kMeasured ? 2'000 : 200);
  expect_encoded_in_time("every word explodes", file_with(",\"pre_tokenizer\":" + split_on("(a+)+[bc]")), text);
  std::string pieces = split_on("!") + "," + split_on("(a+)+[bc]");
  expect_encoded_in_time("every piece explodes",
                         file_with(",\"pre_tokenizer\":" + sequence("pretokenizers", pieces, 1)), text);
  expect_encoded_in_time("every replacement explodes",
                         file_with(R"(,"normalizer":{"type":"Replace","pattern":{"Regex":"(a+)+[bc]"},"content":"b"})"),
                         text);
}

TEST(TokenizerBounds, AddedTokensThatExplodeInTheNormalizerShareOneBudget) {
  std::string added;
  for (int i = 0; i < 2000; ++i) {
    added += (i > 0 ? ",{\"id\":" : "{\"id\":") + std::to_string(i + 4) + R"(,"content":"aaaaaaaaaaaaaaaaa!)" +
             std::to_string(i) + R"(","normalized":true})";
  }
  expect_encoded_in_time("added tokens",
                         file_with(R"(,"normalizer":{"type":"Replace","pattern":{"Regex":"(a+)+[bc]"},"content":"b"})"
                                   ",\"added_tokens\":[" +
                                   added + "]"),
                         "a");
}

// What a possessive repeat reads is one step to the library, and it makes other repeats possessive where it can.
TEST(TokenizerBounds, AnExpressionThatReadsFarFromEveryBeginningIsBounded) {
  for (const char* expression :
       {R"(\\p{L}++[0-9])", R"(\\p{L}+[0-9])", R"((?>\\p{L}+)!)", R"((?=\\p{L}+)[0-9])", "a{60000}b"}) {
    const std::string text(kMeasured ? 1'000'000 : 20'000, 'a');
    expect_encoded_in_time(expression, file_with(",\"pre_tokenizer\":" + split_on(expression)), text);
    expect_encoded_in_time(expression,
                           file_with(R"(,"normalizer":{"type":"Replace","pattern":{"Regex":")" +
                                     std::string(expression) + R"("},"content":"b"})"),
                           text);
  }
}

TEST(TokenizerBounds, LongAddedTokensAreRefusedBeforeANormalizerReadsThem) {
  expect_refused(file_with(R"(,"normalizer":{"type":"Replace","pattern":{"Regex":"a"},"content":""},"added_tokens":)"
                           R"([{"id":4,"content":")" +
                           std::string(1'000'000, 'a') + "\"}]"),
                 "at most 512");
}

TEST(TokenizerBounds, MatchesOfManyStepsAreStillFound) {
  // A word of 20,000 letters takes some 40,000 steps; the budget is the text's, not a word's.
  auto made = Tokenizer::from_json(file_with(",\"pre_tokenizer\":" + split_on("(?:a|b)+|!")));
  ASSERT_TRUE(made.ok()) << made.error().message;
  std::string text = "!" + std::string(20'000, 'a') + "b!ab";
  std::vector<TokenId> ids = (*made)->encode(text);
  ASSERT_EQ(ids.size(), 1u + 19'999u + 1u + 1u + 1u);
  EXPECT_EQ(ids.back(), TokenId{2});
}

TEST(TokenizerBounds, AnIdFarBeyondAllTokensIsRefused) {
  const std::string far = R"({"model":{"type":"BPE","vocab":{"a":1000000},"merges":[]}})";
  expect_refused(far + std::string(8'000'000, ' '), "far beyond");
  // Of an added token too; holes after a whole vocabulary are fine.
  const std::string holes = R"(,"added_tokens":[{"id":1000,"content":"x"}])";
  ASSERT_TRUE(Tokenizer::from_json(file_with(holes)).ok());
  const std::string following = R"(,"added_tokens":[{"id":1000000,"content":"x"}])";
  expect_refused(file_with(following) + std::string(8'000'000, ' '), "far beyond");
}

TEST(TokenizerBounds, TokensThatFallApartInTooManyWaysAreRefused) {
  Vocabulary v;
  v.model = VocabularyModel::kSentencePieceBpe;
  v.tokens = {"<unk>"};
  v.unknown = TokenId{0};
  for (char c = 'a'; c <= 'e'; ++c) {
    for (size_t n = 1; n <= 1000; ++n) v.tokens.push_back(std::string(n, c));
  }
  ProcessorTime time("tokens of one letter");
  auto made = Tokenizer::from_vocabulary(std::move(v));
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("can be cut in more than"), std::string::npos) << made.error().message;
}

// Each token stands where it is looked for first, and all of them side by side: what is not there was looked for to the
// end of them.
TEST(TokenizerBounds, TextsOfNoTokenAreNotLookedForAlongAllTokens) {
  constexpr int kBits = 16, kShift = 64 - kBits;
  const auto place_of = [](const std::string& s) { return TokenMap::mix(TokenMap::hash(s)) >> kShift; };
  std::vector<std::string> tokens(size_t{1} << (kBits - 1)), absent;
  size_t n_left = tokens.size();
  for (uint32_t k = 0; n_left > 0; ++k) {
    std::string s = "t" + std::to_string(k);
    const size_t place = place_of(s);
    if (place < 64) absent.push_back(s);
    if (place >= tokens.size() || !tokens[place].empty()) continue;
    tokens[place] = std::move(s);
    --n_left;
  }
  const TokenMap map = TokenMap::build(tokens).value();
  ProcessorTime time("texts of no token");
  size_t n_found = 0;
  for (int round = 0; round < 500'000; ++round) {
    std::string& s = absent[static_cast<size_t>(round) % absent.size()];
    n_found += map.find(s) >= 0;
  }
  EXPECT_GT(n_found, 0U);
  EXPECT_LT(n_found, 500'000U);
}

TEST(TokenizerBounds, ManyRareCharactersAreReadInTime) {
  Vocabulary v;
  v.model = VocabularyModel::kSentencePieceBpe;
  v.tokens = {"<unk>"};
  v.unknown = TokenId{0};
  // Descending, so that a sorted list of them would move at each.
  for (uint32_t c = 0x10FFFF; c > 0x10FFFF - 200'000 && c > 0x10000; --c) {
    std::string token;
    for (int k = 0; k < 2; ++k) {
      for (int shift : {18, 12, 6, 0}) {
        token += static_cast<char>(shift == 18 ? 0xF0 | c >> 18 : 0x80 | (c >> shift & 0x3F));
      }
    }
    v.tokens.push_back(token);
  }
  ProcessorTime time("rare characters");
  auto made = Tokenizer::from_vocabulary(std::move(v));
  ASSERT_TRUE(made.ok()) << made.error().message;
}

}  // namespace
}  // namespace ibid
