#include "text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "base/utf8.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/unicode.h"

namespace ibid {
namespace {

// Every byte a token; "ab", " a", "<|end|>" (control), "<user>" (user-defined).
Vocabulary byte_vocabulary(const std::string& pre = "gpt-2") {
  Vocabulary v;
  v.pre_tokenizer = pre;
  for (const std::string& spelled : byte_alphabet::spellings()) v.tokens.push_back(spelled);
  v.tokens.insert(v.tokens.end(), {"ab",
                                   "\xC4\xA0"
                                   "a"});
  v.merges = {"a b", "\xC4\xA0 a"};
  v.types.assign(v.tokens.size(), TokenType::kNormal);
  v.tokens.insert(v.tokens.end(), {"<|end|>", "<user>"});
  v.types.insert(v.types.end(), {TokenType::kControl, TokenType::kUserDefined});
  return v;
}
constexpr TokenId kAb{256}, kSpaceA{257}, kEnd{258}, kUser{259};

Vocabulary piece_vocabulary(VocabularyModel model = VocabularyModel::kSentencePieceBpe) {
  Vocabulary v;
  v.model = model;
  v.tokens = {"<unk>", "<s>", "</s>"};
  v.types = {TokenType::kUnknown, TokenType::kControl, TokenType::kControl};
  for (int b = 0; b < 256; ++b) {
    const char* digits = "0123456789ABCDEF";
    v.tokens.push_back(std::string("<0x") + digits[b / 16] + digits[b % 16] + ">");
    v.types.push_back(TokenType::kByte);
  }
  for (const char* t : {"\xE2\x96\x81", "a", "b", "ab", "\xE2\x96\x81\x61"}) {
    v.tokens.push_back(t);
    v.types.push_back(TokenType::kNormal);
  }
  for (size_t i = 0; i < v.tokens.size(); ++i) v.scores.push_back(-static_cast<float>(i));
  v.unknown = TokenId{0}, v.bos = TokenId{1}, v.eos = TokenId{2};
  v.add_bos = true;
  return v;
}

std::shared_ptr<const Tokenizer> make(Vocabulary v) {
  auto made = Tokenizer::from_vocabulary(std::move(v));
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return *made;
}

TEST(Tokenizer, ReadsSpecialTextOnlyWhereAsked) {
  auto t = make(byte_vocabulary());
  EXPECT_EQ(t->encode("<|end|>", {.parse_special = true}), std::vector<TokenId>{kEnd});
  EXPECT_EQ(t->encode("<|end|>").size(), 7u);
  EXPECT_EQ(t->encode("<user>"), std::vector<TokenId>{kUser});  // user-defined tokens are always read
}

TEST(Tokenizer, LeavesSpecialTextPlainWhereItTouchesAPlainRange) {
  auto t = make(byte_vocabulary());
  std::string text = "<|end|>ab<|end|>";
  for (TextRange plain : {TextRange{0, 1}, TextRange{3, 4}, TextRange{6, 9}, TextRange{0, 9}}) {
    std::vector<TokenId> ids = t->encode(text, {.parse_special = true, .plain_ranges = {&plain, 1}});
    EXPECT_NE(ids.front(), kEnd);
    EXPECT_EQ(ids.back(), kEnd);
  }
  TextRange between = {7, 9};
  std::vector<TokenId> ids = t->encode(text, {.parse_special = true, .plain_ranges = {&between, 1}});
  EXPECT_EQ(ids, (std::vector<TokenId>{kEnd, kAb, kEnd}));
}

TEST(Tokenizer, PlainRangesHoldAlsoAfterInvalidBytes) {
  auto t = make(byte_vocabulary());
  // Two invalid bytes become six; the range is given in bytes of the text as it came.
  std::string text = "\xFF\xFF<|end|><|end|>";
  TextRange plain = {2, 9};
  std::vector<TokenId> ids = t->encode(text, {.parse_special = true, .plain_ranges = {&plain, 1}});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), kEnd), 1);
  EXPECT_EQ(ids.back(), kEnd);
}

TEST(Tokenizer, ReadsInvalidBytesAsPythonDoes) {
  auto t = make(byte_vocabulary());
  // What Python's bytes.decode('utf-8', 'replace') makes of each.
  const std::pair<std::string, std::string> kCases[] = {
      {"\xFF", "\uFFFD"},
      {"a\xC3", "a\uFFFD"},
      {"\xC0\x80", "\uFFFD\uFFFD"},
      {"\xE2\x96", "\uFFFD"},
      {"\xE2\x96x", "\uFFFDx"},
      {"\xF0\x9F\x98", "\uFFFD"},
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"\x80\xE4\xBD\xA0", "\uFFFD\u4F60"},
  };
  for (const auto& [bytes, text] : kCases) {
    EXPECT_EQ(t->encode(bytes), t->encode(text));
    EXPECT_EQ(t->decode(t->encode(bytes)), text);
  }
}

TEST(Tokenizer, KeepsInvalidBytesWhereAsked) {
  for (auto t : {make(byte_vocabulary()), make(piece_vocabulary())}) {
    std::string bytes = "a\xFF\xC3 \xE2\x96";
    std::string back;
    for (TokenId id : t->encode(bytes, {.strict_bytes = true})) back += t->token_bytes(id);
    EXPECT_EQ(back, (t->strips_leading_space() ? " " : "") + bytes);
  }
}

TEST(Tokenizer, GivesEveryCodePointBack) {
  std::vector<std::shared_ptr<const Tokenizer>> all = {make(piece_vocabulary()),
                                                       make(piece_vocabulary(VocabularyModel::kUnigram))};
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "deepseek-llm", "deepseek-coder", "deepseek-v3", "gpt-4o",
                          "tekken", "falcon", "bloom", "kimi-k2"}) {
    all.push_back(make(byte_vocabulary(pre)));
  }
  std::vector<TokenId> ids;
  for (const auto& t : all) {
    std::string text;
    for (char32_t c = 0; c < 0x110000; ++c) {
      if (c == 0xD800) c = 0xE000;
      // SentencePiece's own mark for a space.
      if (c == 0x2581 && t->vocabulary().model != VocabularyModel::kBpe) continue;
      utf8::append(c, text);
      if (c % 3 == 0) text += ' ';
      if (text.size() < 200000 && c != 0x10FFFF) continue;
      ids.clear();
      t->encode(text, {}, ids);
      ASSERT_TRUE(t->decode(ids) == text) << t->vocabulary().pre_tokenizer << " up to U+" << std::hex << uint32_t(c);
      text.clear();
    }
  }
}

// A converter marks the begin of words with U+2581 and drops the ##; a user's own U+2581 is no such mark.
TEST(Tokenizer, AMarkInAUsersTextBeginsNoWordPiece) {
  const std::string json = R"({"model":{"type":"WordPiece","unk_token":"[UNK]","vocab":{"[UNK]":0,"[CLS]":1,"a":2,)"
                           R"("un":3,"##able":4,"able":5,"hello":6,".":7,"##x":8,"\u2581y":9}},)"
                           R"("added_tokens":[{"id":0,"content":"[UNK]","special":true,"normalized":false},)"
                           R"({"id":1,"content":"[CLS]","special":true,"normalized":false}],)"
                           R"("normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":"BertPreTokenizer"},)"
                           R"("decoder":{"type":"WordPiece","prefix":"##","cleanup":true}})";
  auto folder = Tokenizer::from_json(json);
  ASSERT_TRUE(folder.ok()) << folder.error().message;
  Vocabulary v;
  v.model = VocabularyModel::kWordPiece;
  v.tokens = {"[UNK]",
              "[CLS]",
              "\u2581a",
              "\u2581un",
              "able",
              "\u2581"
              "able",
              "\u2581hello",
              "\u2581.",
              "x",
              "\u2581\u2581y"};
  v.types.assign(v.tokens.size(), TokenType::kNormal);
  v.types[0] = v.types[1] = TokenType::kControl;
  v.unknown = TokenId{0};
  auto file = make(std::move(v));
  for (const char* text : {"unable hello", "a\u2581hello", "\u2581hello", "\u2581", "hello\u2581",
                           "un\u2581able ax\u2581y", "\u2581y", "a\u2581y", "hello . unable.",
                           "[CLS] a un\u2581"
                           "able hello",
                           "\u2581\u2581y"}) {
    const EncodeOptions options = {.parse_special = true};
    EXPECT_EQ(file->encode(text, options), (*folder)->encode(text, options)) << text;
    for (bool special : {false, true}) {
      const std::vector<TokenId> ids = (*folder)->encode(text, options);
      EXPECT_EQ(file->decode(ids, special), (*folder)->decode(ids, special)) << text;
    }
  }
  EXPECT_EQ(file->encode("a\u2581hello"), std::vector<TokenId>{TokenId{0}});
}

TEST(Tokenizer, AddsTheModelsTokensAroundATextOnRequestOnly) {
  auto t = make(piece_vocabulary());
  EXPECT_EQ(t->encode("", {.add_special = true}), std::vector<TokenId>{TokenId{1}});
  EXPECT_TRUE(t->encode("").empty());
}

TEST(Tokenizer, PrefixesASpaceToEveryTextBetweenSpecialTokens) {
  auto t = make(piece_vocabulary());
  TokenId space_a{263};
  EXPECT_EQ(t->encode("a</s>a", {.parse_special = true}), (std::vector<TokenId>{space_a, TokenId{2}, space_a}));
  EXPECT_EQ(t->decode(t->encode("a b")), "a b");
}

TEST(Tokenizer, GivesNothingForIdsThatDoNotExist) {
  auto t = make(byte_vocabulary());
  EXPECT_EQ(t->token_bytes(TokenId::kNone), "");
  EXPECT_EQ(t->token_bytes(TokenId{1 << 30}), "");
  EXPECT_EQ(t->token_bytes(kEnd), "");
  EXPECT_EQ(t->token_bytes(kEnd, true), "<|end|>");
}

TEST(Tokenizer, EncodesOnManyThreadsAtOnce) {
  auto a = make(byte_vocabulary()), b = make(piece_vocabulary()), c = make(byte_vocabulary("llama-bpe"));
  std::string text = "ab a <user> \xE4\xBD\xA0 ab";
  auto expected = std::array{a->encode(text), b->encode(text), c->encode(text)};
  std::vector<std::thread> threads;
  std::atomic<int> n_wrong = 0;
  for (int k = 0; k < 4; ++k) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        n_wrong += a->encode(text) != expected[0];
        n_wrong += b->encode(text) != expected[1];
        n_wrong += c->encode(text) != expected[2];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_wrong, 0);
}

// A thread remembers words of the last two tokenizers that it used. What was encoded before, by whichever of them and
// however, shows in no ids.
TEST(Tokenizer, GivesTheSameIdsWhateverWasEncodedBefore) {
  const auto all = [] {
    return std::array{make(byte_vocabulary()), make(piece_vocabulary()), make(byte_vocabulary("llama-bpe")),
                      make(piece_vocabulary(VocabularyModel::kUnigram))};
  };
  std::mt19937_64 random(1);
  static const char* const kWords[] = {"ab",     " ab",           "a",    "aab", " a", "<|end|>",
                                       "<user>", "b\xE4\xBD\xA0", "\xFF", "  "};
  struct Call {
    size_t tokenizer;
    std::string text;
    EncodeOptions options;
    std::vector<TokenId> ids;
  };
  std::vector<Call> calls(400);
  static const TextRange kPlain[] = {{0, 3}};
  for (Call& call : calls) {
    call.tokenizer = random() % 4;
    for (auto n = 1 + random() % 4; n > 0; --n) call.text += kWords[random() % std::size(kWords)];
    call.options.add_special = random() % 2 == 0;
    call.options.parse_special = random() % 2 == 0;
    if (random() % 3 == 0) call.options.plain_ranges = kPlain;
    std::thread([&] { all()[call.tokenizer]->encode(call.text, call.options, call.ids); }).join();  // remembers nothing
  }
  const auto warm = all();
  for (int turn = 0; turn < 5; ++turn) {
    std::ranges::shuffle(calls, random);
    for (const Call& call : calls) {
      std::vector<TokenId> ids;
      warm[call.tokenizer]->encode(call.text, call.options, ids);
      ASSERT_EQ(ids, call.ids) << call.tokenizer << " " << call.text;
    }
  }
}

TEST(Vocabulary, ReportsTheFirstDifference) {
  Vocabulary a = byte_vocabulary(), b = a;
  b.merges.clear(), b.chat_template = "x";
  EXPECT_EQ(first_difference(a, b), std::nullopt);
  b.tokens[256] = "ba";
  EXPECT_EQ(first_difference(a, b), "token 256 is \"ab\" in the first vocabulary and \"ba\" in the second");
  b = a;
  b.tokens.push_back("x");
  EXPECT_EQ(first_difference(a, b), "the first vocabulary has 260 tokens and the second 261");
  b = a;
  a.end_of_generation = {TokenId{3}, TokenId{1}};
  b.end_of_generation = {TokenId{1}, TokenId{2}};
  EXPECT_EQ(first_difference(a, b), "token 2 ends an answer in the second vocabulary only");
}

TEST(Unicode, NormalFormsComposeAndOrderMarks) {
  auto form = [](std::string_view text, unicode::Form f) {
    std::string out;
    unicode::append_normalized(text, f, out);
    return out;
  };
  using unicode::Form;
  EXPECT_EQ(form("e\u0301", Form::kNfc), "\u00E9");
  EXPECT_EQ(form("\u1E9B\u0323", Form::kNfkc), "\u1E69");
  EXPECT_EQ(form("a\u0315\u0300\u05AE\u0062", Form::kNfc), "\u00E0\u05AE\u0315b");
  EXPECT_EQ(form("\u1112\u1161\u11AB", Form::kNfc), "\uD55C");
  EXPECT_EQ(form("\uD55C", Form::kNfd), "\u1112\u1161\u11AB");
  EXPECT_EQ(form("\u0344", Form::kNfc), "\u0308\u0301");
  EXPECT_EQ(form("\uFB01", Form::kNfkd), "fi");
}

}  // namespace
}  // namespace ibid
