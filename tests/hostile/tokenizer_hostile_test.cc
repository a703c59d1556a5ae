// Tokenizers with false contents, and texts meant to hang the program: each named case ends in an error sentence or
// in a right result, within a second and 64 MiB.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>

#include "hostile/limits.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid {
namespace {

class Bounds {
 public:
  explicit Bounds(const std::string& name) : name_(name), time_(name) {}
  ~Bounds() {
    if (kMeasured) {
      EXPECT_LT(peak_kb() - peak_kb_, 64 << 10) << name_;
    }
  }

 private:
  std::string name_;
  long peak_kb_ = peak_kb();
  ProcessorTime time_;
};

// --- vocabularies -------------------------------------------------------------------------------------------------

Vocabulary bytes_vocabulary() {
  Vocabulary v;
  v.pre_tokenizer = "gpt-2";
  for (char c = '!'; c <= '~'; ++c) v.tokens.push_back(std::string(1, c));
  v.tokens.insert(v.tokens.end(), {"\xC4\xA0", "ab", "abc",
                                   "\xC4\xA0"
                                   "a",
                                   "<|end|>"});
  v.types.assign(v.tokens.size(), TokenType::kNormal);
  v.types.back() = TokenType::kControl;
  v.merges = {"a b", "ab c", "\xC4\xA0 a"};
  return v;
}

Vocabulary pieces_vocabulary(VocabularyModel model) {
  Vocabulary v;
  v.model = model;
  v.tokens = {"<unk>", "<s>", "</s>"};
  v.types = {TokenType::kUnknown, TokenType::kControl, TokenType::kControl};
  for (int b = 0; b < 256; ++b) {
    char spelled[8];
    std::snprintf(spelled, sizeof spelled, "<0x%02X>", b);
    v.tokens.push_back(spelled);
    v.types.push_back(TokenType::kByte);
  }
  for (const char* t : {"\xE2\x96\x81", "a", "b", "ab",
                        "\xE2\x96\x81"
                        "a"}) {
    v.tokens.push_back(t);
    v.types.push_back(TokenType::kNormal);
  }
  for (size_t i = 0; i < v.tokens.size(); ++i) v.scores.push_back(-static_cast<float>(i));
  v.unknown = TokenId{0};
  v.bos = TokenId{1};
  v.eos = TokenId{2};
  return v;
}

struct VocabularyCase {
  const char* name;
  std::function<Vocabulary()> make;
  const char* says;  // what the error names; null: the vocabulary is taken
};

Vocabulary changed(Vocabulary v, const std::function<void(Vocabulary&)>& change) {
  change(v);
  return v;
}
VocabularyCase bpe(const char* name, std::function<void(Vocabulary&)> change, const char* says) {
  return {name, [change] { return changed(bytes_vocabulary(), change); }, says};
}
VocabularyCase spm(const char* name, std::function<void(Vocabulary&)> change, const char* says) {
  return {name, [change] { return changed(pieces_vocabulary(VocabularyModel::kSentencePieceBpe), change); }, says};
}
VocabularyCase unigram(const char* name, std::function<void(Vocabulary&)> change, const char* says) {
  return {name, [change] { return changed(pieces_vocabulary(VocabularyModel::kUnigram), change); }, says};
}

std::vector<VocabularyCase> vocabulary_cases() {
  using V = Vocabulary&;
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  return {
      bpe(
          "bpe as it should be", [](V) {}, nullptr),
      bpe(
          "no tokens", [](V v) { v = Vocabulary{}; }, "no tokens"),
      bpe(
          "unknown pre-tokenizer", [](V v) { v.pre_tokenizer = "nobody-knows"; }, "nobody-knows"),
      bpe(
          "pre-tokenizer name of a megabyte", [](V v) { v.pre_tokenizer = std::string(1 << 20, 'x'); },
          "pre-tokenizer"),
      bpe(
          "pre-tokenizer name with a nul", [](V v) { v.pre_tokenizer = std::string("gpt-2\0", 6); }, "not known"),
      bpe(
          "merge without space", [](V v) { v.merges.push_back("ab"); }, "merge 3"),
      bpe(
          "merge that is empty", [](V v) { v.merges.push_back(""); }, "merge 3"),
      bpe(
          "merge of a space", [](V v) { v.merges.push_back(" "); }, "merge 3"),
      bpe(
          "merge without right side", [](V v) { v.merges.push_back("a "); }, "merge 3"),
      bpe(
          "merge without left side", [](V v) { v.merges.push_back(" a"); }, "merge 3"),
      bpe(
          "merge of three", [](V v) { v.merges.push_back("a b c"); }, "merge 3"),
      bpe(
          "merge of an unknown token", [](V v) { v.merges.push_back("a zz"); }, "not in the vocabulary"),
      bpe(
          "merge to an unknown token", [](V v) { v.merges.push_back("a z"); }, "makes a token"),
      bpe(
          "merge of a megabyte", [](V v) { v.merges.push_back(std::string(1 << 20, 'a') + " b"); }, "merge 3"),
      bpe(
          "merge of invalid UTF-8", [](V v) { v.merges.push_back("\xFF\xFE \xC0"); }, "merge 3"),
      bpe(
          "the same merge twice", [](V v) { v.merges.push_back("a b"); }, nullptr),
      bpe(
          "the same merge 300,000 times", [](V v) { v.merges.assign(300000, "a b"); }, nullptr),
      bpe(
          "no merges", [](V v) { v.merges.clear(); }, nullptr),
      bpe(
          "merges in an impossible order",
          [](V v) {
            v.merges = {"ab c", "a b"};
          },
          nullptr),
      bpe(
          "the same token twice", [](V v) { v.tokens.push_back("a"), v.types.push_back(TokenType::kNormal); }, "twice"),
      bpe(
          "a hundred empty tokens",
          [](V v) { v.tokens.resize(v.tokens.size() + 100), v.types.resize(v.tokens.size(), TokenType::kNormal); },
          nullptr),
      bpe(
          "all tokens empty", [](V v) { v = Vocabulary{}, v.pre_tokenizer = "gpt-2", v.tokens.resize(1000); }, nullptr),
      bpe(
          "a token of a megabyte", [](V v) { v.tokens[0] = std::string(1 << 20, 'q'); }, nullptr),
      bpe(
          "a token of invalid UTF-8", [](V v) { v.tokens[0] = "\xFF\xC0\x80"; }, nullptr),
      bpe(
          "a token with a nul", [](V v) { v.tokens[0] = std::string("\0x", 2); }, nullptr),
      bpe(
          "fewer types than tokens", [](V v) { v.types.pop_back(); }, "one for each"),
      bpe(
          "more types than tokens", [](V v) { v.types.push_back(TokenType::kNormal); }, "one for each"),
      bpe(
          "type 0", [](V v) { v.types[3] = static_cast<TokenType>(0); }, "type 0"),
      bpe(
          "type 7", [](V v) { v.types[3] = static_cast<TokenType>(7); }, "type 7"),
      bpe(
          "type -1", [](V v) { v.types[3] = static_cast<TokenType>(-1); }, "type -1"),
      bpe(
          "type 127", [](V v) { v.types[3] = static_cast<TokenType>(127); }, "type 127"),
      bpe(
          "bos past the end", [](V v) { v.bos = TokenId{99999}; }, "bos id 99999"),
      bpe(
          "bos of -2", [](V v) { v.bos = TokenId{-2}; }, "bos id -2"),
      bpe(
          "eos past the end", [](V v) { v.eos = TokenId{INT32_MAX}; }, "eos id"),
      bpe(
          "eos least integer", [](V v) { v.eos = TokenId{INT32_MIN}; }, "eos id"),
      bpe(
          "unknown past the end", [](V v) { v.unknown = TokenId{1000}; }, "unknown id"),
      bpe(
          "padding past the end", [](V v) { v.padding = TokenId{1000}; }, "padding id"),
      bpe(
          "separator past the end", [](V v) { v.separator = TokenId{1000}; }, "separator id"),
      bpe(
          "end of generation past the end",
          [](V v) {
            v.end_of_generation = {TokenId{5}, TokenId{1000}};
          },
          "end-of-generation"),
      bpe(
          "end of generation negative", [](V v) { v.end_of_generation = {TokenId{-1}}; }, "end-of-generation"),
      bpe(
          "fewer scores than tokens", [](V v) { v.scores = {1.0f}; }, "scores"),
      bpe(
          "byte token with a sign", [](V v) { v.tokens[5] = "<0x-1>", v.types[5] = TokenType::kByte; }, "<0x-1>"),
      bpe(
          "byte token with one digit", [](V v) { v.tokens[5] = "<0xA>", v.types[5] = TokenType::kByte; }, "byte token"),
      bpe(
          "byte token with three digits", [](V v) { v.tokens[5] = "<0x100>", v.types[5] = TokenType::kByte; },
          "byte token"),
      bpe(
          "byte token with no hexadecimal digit", [](V v) { v.tokens[5] = "<0xGG>", v.types[5] = TokenType::kByte; },
          "byte token"),
      bpe(
          "byte token that is empty", [](V v) { v.tokens[5] = "", v.types[5] = TokenType::kByte; }, "byte token"),
      bpe(
          "control token of a megabyte", [](V v) { v.tokens.back() = std::string(1 << 20, '<'); }, "at most 512"),
      bpe(
          "200,000 control tokens",
          [](V v) {
            for (int i = 0; i < 200000; ++i) v.tokens.push_back("<|" + std::to_string(i) + "|>");
            v.types.resize(v.tokens.size(), TokenType::kControl);
          },
          "at most 100000"),
      bpe(
          "control tokens of two megabytes",
          [](V v) {
            for (int i = 0; i < 5000; ++i) v.tokens.push_back(std::to_string(i) + std::string(480, 'x'));
            v.types.resize(v.tokens.size(), TokenType::kControl);
          },
          "bytes together"),
      bpe(
          "a control token for every prefix of 500 letters",
          [](V v) {
            for (size_t i = 2; i < 500; ++i) v.tokens.push_back(std::string(i, 'z'));
            v.types.resize(v.tokens.size(), TokenType::kUserDefined);
          },
          nullptr),
      bpe(
          "all tokens are control tokens", [](V v) { v.types.assign(v.tokens.size(), TokenType::kControl); }, nullptr),
      bpe(
          "all tokens are unused", [](V v) { v.types.assign(v.tokens.size(), TokenType::kUnused); }, nullptr),
      spm(
          "sentencepiece as it should be", [](V) {}, nullptr),
      spm(
          "score NaN", [=](V v) { v.scores[7] = nan; }, "score of token 7"),
      spm(
          "score infinite", [=](V v) { v.scores[7] = infinity; }, "score of token 7"),
      spm(
          "score minus infinite", [=](V v) { v.scores[7] = -infinity; }, "score of token 7"),
      spm(
          "all scores equal", [](V v) { v.scores.assign(v.scores.size(), 0.0f); }, nullptr),
      spm(
          "no scores", [](V v) { v.scores.clear(); }, nullptr),
      spm(
          "more scores than tokens", [](V v) { v.scores.push_back(0); }, "scores"),
      spm(
          "scores of subnormal and huge numbers", [](V v) { v.scores[260] = 1e-44f, v.scores[261] = 3e38f; }, nullptr),
      spm(
          "no byte tokens and no unknown token",
          [](V v) {
            for (int i = 3; i < 259; ++i)
              v.tokens[static_cast<size_t>(i)] += "x", v.types[static_cast<size_t>(i)] = TokenType::kNormal;
            v.unknown = TokenId::kNone;
          },
          nullptr),
      spm(
          "negative byte name", [](V v) { v.tokens[3] = "<0x-1>"; }, "<0x-1>"),
      spm(
          "two byte tokens of the same byte", [](V v) { v.tokens[4] = v.tokens[3]; }, "twice"),
      spm(
          "byte token in lower case", [](V v) { v.tokens[3 + 0xAB] = "<0xab>"; }, nullptr),
      spm(
          "piece of invalid UTF-8", [](V v) { v.tokens[260] = "\xE2\x96"; }, nullptr),
      spm(
          "piece of a megabyte", [](V v) { v.tokens[260] = std::string(1 << 20, 'a'); }, nullptr),
      spm(
          "1,000 pieces of 1,000 letters",
          [](V v) {
            for (int i = 0; i < 1000; ++i)
              v.tokens.push_back(std::string(996, 'a') + std::to_string(1000 + i)), v.scores.push_back(0);
            v.types.resize(v.tokens.size(), TokenType::kNormal);
          },
          nullptr),
      unigram(
          "unigram as it should be", [](V) {}, nullptr),
      unigram(
          "unigram score NaN", [=](V v) { v.scores[9] = nan; }, "score of token 9"),
      unigram(
          "unigram without scores", [](V v) { v.scores.clear(); }, "no scores"),
      unigram(
          "unigram without unknown token", [](V v) { v.unknown = TokenId::kNone; }, nullptr),
      unigram(
          "unigram with scores near the end of float", [](V v) { v.scores.assign(v.scores.size(), -3e38f); }, nullptr),
      {"word pieces without an unknown token",
       [] {
         Vocabulary v;
         v.model = VocabularyModel::kWordPiece;
         v.tokens = {"a", "##b"};
         return v;
       },
       nullptr},
  };
}

const std::vector<std::string>& texts() {
  static const std::vector<std::string> kTexts = {"",
                                                  " ",
                                                  "abc abab <|end|> </s>",
                                                  std::string("\0\0", 2),
                                                  "\xFF\xFE\xC0\x80",
                                                  "\xF0\x9F\x98",
                                                  std::string(3000, 'a'),
                                                  std::string(500, 'z') + "y",
                                                  repeated("\xCC\x81", 300),
                                                  "\xE2\x96\x81\xE2\x96\x81 a",
                                                  "<0x41><0x-1>"};
  return kTexts;
}

// Ids are in range whatever the text, and decoding any id is no accident.
void use(const Tokenizer& t, const std::string& name) {
  for (const std::string& text : texts()) {
    for (int mode = 0; mode < 8; ++mode) {
      EncodeOptions options = {
          .add_special = (mode & 1) != 0, .parse_special = (mode & 2) != 0, .strict_bytes = (mode & 4) != 0};
      for (TokenId id : t.encode(text, options)) {
        ASSERT_GE(raw(id), 0) << name;
        ASSERT_LT(raw(id), t.vocab_size()) << name;
      }
    }
  }
  std::vector<TokenId> ids = {TokenId{-1},
                              TokenId{0},
                              TokenId{INT32_MAX},
                              TokenId{INT32_MIN},
                              TokenId{t.vocab_size() - 1},
                              TokenId{t.vocab_size()}};
  t.decode(ids, true);
  t.decode(ids, false);
}

TEST(HostileVocabulary, EachEndsInASentenceOrWorks) {
  size_t n_cases = 0;
  for (const VocabularyCase& c : vocabulary_cases()) {
    Vocabulary v = c.make();
    Bounds bounds(c.name);
    auto made = Tokenizer::from_vocabulary(std::move(v));
    ++n_cases;
    if (c.says) {
      ASSERT_FALSE(made.ok()) << c.name;
      expect_sentence(made.error(), c.name);
      EXPECT_NE(made.error().message.find(c.says), std::string::npos) << c.name << ": " << made.error().message;
    } else {
      ASSERT_TRUE(made.ok()) << c.name << ": " << made.error().message;
      use(**made, c.name);
    }
  }
  EXPECT_GE(n_cases, 70u);
}

// --- tokenizer.json -----------------------------------------------------------------------------------------------

constexpr const char* kModel = R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"<u>":3},"merges":["a b"]})";

std::string file(const std::string& model = kModel, const std::string& more = "") {
  return "{\"version\":\"1.0\"" + more + ",\"model\":" + model + "}";
}
std::string with(const char* part, const std::string& value) {
  return file(kModel, std::string(",\"") + part + "\":" + value);
}
std::string split_on(const std::string& expression) {
  return with("pre_tokenizer",
              R"({"type":"Split","pattern":{"Regex":")" + expression + R"("},"behavior":"Isolated","invert":false})");
}
std::string many_added(size_t n) {
  std::string all = "[";
  for (size_t i = 0; i < n; ++i) {
    if (i > 0) all += ',';
    all += "{\"id\":" + std::to_string(i + 4) + ",\"content\":\"<" + std::to_string(i) + ">\"}";
  }
  return all + "]";
}

struct JsonCase {
  const char* name;
  std::function<std::string()> make;
  const char* says;
};
JsonCase json(const char* name, std::string text, const char* says) {
  return {name, [text = std::move(text)] { return text; }, says};
}

std::vector<JsonCase> json_cases() {
  return {
      json("file as it should be", file(), nullptr),
      json("empty file", "", "expected"),
      json("only white space", "  \n ", "expected"),
      json("null", "null", "expected"),
      json("numbers that are none", R"({"x":NaN,"model":{}})", "a number"),
      {"a million brackets beside the model", [] { return "{\"x\":" + std::string(1000000, '[') + "}"; }, "nesting"},
      json("an array", "[]", "expected"),
      json("a number", "12", "expected"),
      json("an empty object", "{}", "no \"model\""),
      json("no model", R"({"version":"1.0","added_tokens":[]})", "no \"model\""),
      json("model null", R"({"model":null})", "expected"),
      json("model a string", R"({"model":"BPE"})", "expected"),
      json("model an array", R"({"model":[]})", "expected"),
      json("model twice", R"({"model":{"type":"BPE"},"model":)" + std::string(kModel) + "}", "no \"vocab\""),
      json("bytes after the end", file() + "x", "the end of the file"),
      json("two files in one", file() + file(), "the end of the file"),
      json("cut in a string", file().substr(0, 40), "expected"),
      json("cut before the last brace", file().substr(0, file().size() - 1), "expected"),
      json("single quotes", R"({'model':{}})", "a key"),
      json("trailing comma", R"({"model":{"type":"BPE","vocab":{"a":0,},"merges":[]}})", "a key"),
      json("missing comma", R"({"model":{"type":"BPE" "vocab":{}}})", "','"),
      json("missing colon", R"({"model" {}})", "':'"),
      json("comment", "{/* */\"model\":{}}", "a key"),
      json("NaN", R"({"model":NaN})", "expected"),
      json("leading zero", R"({"x":01,"model":{}})", "a number"),
      json("plus sign", R"({"x":+1,"model":{}})", "a number"),
      json("control character in a string", "{\"a\x01\":1}", "control character"),
      json("bad escape", R"({"\q":1})", "an escape"),
      json("short unicode escape", R"({"\u12":1})", "hexadecimal"),
      json("lone high surrogate", R"({"model":{"type":"BPE","vocab":{"\ud800":0},"merges":[]}})", "surrogate"),
      json("lone low surrogate", R"({"model":{"type":"BPE","vocab":{"\udc00":0},"merges":[]}})", "surrogate"),
      json("invalid UTF-8", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\xFF\":0},\"merges\":[]}}", "UTF-8"),
      json("overlong UTF-8", "{\"\xC0\xAF\":0}", "UTF-8"),
      json("UTF-16", std::string("\xFF\xFE{\0}\0", 6), "expected"),
      json("byte order mark", "\xEF\xBB\xBF" + file(), "expected"),
      {"a million brackets", [] { return std::string(1000000, '['); }, "expected"},
      {"a million brackets in the model", [] { return "{\"model\":" + std::string(1000000, '[') + "}"; }, "expected"},
      {"a million objects deep", [] { return repeated("{\"a\":", 1000000); }, "nesting"},
      {"a normalizer 1,000 deep",
       [] {
         return with("normalizer", repeated(R"({"type":"Sequence","normalizers":[)", 1000) + repeated("]}", 1000));
       },
       "nesting"},
      {"a normalizer 20 deep",
       [] { return with("normalizer", repeated(R"({"type":"Sequence","normalizers":[)", 15) + repeated("]}", 15)); },
       "eight deep"},
      {"a string of ten megabytes", [] { return "{\"x\":\"" + std::string(10 << 20, 'a') + "\"}"; }, "no \"model\""},
      {"a key of ten megabytes", [] { return "{\"" + std::string(10 << 20, 'a') + "\":1}"; }, "no \"model\""},
      {"a number of a million digits",
       [] { return "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":" + std::string(1000000, '9') + "}}}"; }, "2^63"},
      {"ten million zeros", [] { return "{\"x\":[" + repeated("0,", 10000000) + "0],\"model\":" + kModel + "}"; },
       nullptr},
      json("unknown model", file(R"({"type":"Magic","vocab":{"a":0}})"), "Magic"),
      json("model without vocabulary", file(R"({"type":"BPE","merges":[]})"), "no \"vocab\""),
      json("empty vocabulary", file(R"({"type":"BPE","vocab":{},"merges":[]})"), "empty"),
      json("vocabulary of another kind", file(R"({"type":"BPE","vocab":[["a",0.0]],"merges":[]})"), "another kind"),
      json("unigram with a table", file(R"({"type":"Unigram","vocab":{"a":0}})"), "another kind"),
      json("negative id", file(R"({"type":"BPE","vocab":{"a":-1},"merges":[]})"), "id -1"),
      json("id past the memory", file(R"({"type":"BPE","vocab":{"a":4000000000},"merges":[]})"), "4000000000"),
      json("id past 64 bits", file(R"({"type":"BPE","vocab":{"a":99999999999999999999},"merges":[]})"), "2^63"),
      json("id with a fraction", file(R"({"type":"BPE","vocab":{"a":1.5},"merges":[]})"), "whole number"),
      json("id a string", file(R"({"type":"BPE","vocab":{"a":"0"},"merges":[]})"), "a number"),
      json("two tokens of one id", file(R"({"type":"BPE","vocab":{"a":0,"b":0},"merges":[]})"), "the same id"),
      json("one token of two ids", file(R"({"type":"BPE","vocab":{"a":0,"a":1},"merges":[]})"), "twice"),
      json("ids with holes", file(R"({"type":"BPE","vocab":{"a":0,"b":900},"merges":[]})"), nullptr),
      json("dropout", file(R"({"type":"BPE","dropout":0.1,"vocab":{"a":0},"merges":[]})"), "dropout"),
      json("merge of an unknown token", file(R"({"type":"BPE","vocab":{"a":0},"merges":["a b"]})"),
           "not in the vocabulary"),
      json("merge to an unknown token", file(R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]})"),
           "makes a token"),
      json("merge without space", file(R"({"type":"BPE","vocab":{"a":0},"merges":["aa"]})"), "two tokens"),
      json("merge of three", file(R"({"type":"BPE","vocab":{"a":0},"merges":["a a a"]})"), "two tokens"),
      json("merge list of one", file(R"({"type":"BPE","vocab":{"a":0},"merges":[["a"]]})"), "two tokens"),
      json("merge list of three", file(R"({"type":"BPE","vocab":{"a":0,"aa":1},"merges":[["a","a","a"]]})"),
           "two tokens"),
      json("merge a number", file(R"({"type":"BPE","vocab":{"a":0},"merges":[7]})"), "a string"),
      json("merges an object", file(R"({"type":"BPE","vocab":{"a":0},"merges":{}})"), "'['"),
      json("unknown token not there", file(R"({"type":"BPE","unk_token":"?","vocab":{"a":0},"merges":[]})"),
           "unknown token"),
      json("unigram score a string", file(R"({"type":"Unigram","vocab":[["a","x"]]})"), "a number"),
      json("unigram score 1e999", file(R"({"type":"Unigram","vocab":[["a",1e999]]})"), "a double"),
      json("unigram piece without score", file(R"({"type":"Unigram","vocab":[["a"]]})"), "expected"),
      json("unigram piece of three", file(R"({"type":"Unigram","vocab":[["a",0.0,1]]})"), "']'"),
      json("unigram unknown id past the end", file(R"({"type":"Unigram","unk_id":7,"vocab":[["a",0.0]]})"),
           "unknown id 7"),
      json("unigram unknown id negative", file(R"({"type":"Unigram","unk_id":-7,"vocab":[["a",0.0]]})"),
           "unknown id -7"),
      json("word piece length negative",
           file(R"({"type":"WordPiece","unk_token":"a","max_input_chars_per_word":-5,"vocab":{"a":0}})"), nullptr),
      json("added token without id", file(kModel, R"(,"added_tokens":[{"content":"x"}])"), "id -1"),
      json("added token without content", file(kModel, R"(,"added_tokens":[{"id":9}])"), "no content"),
      json("added token of id 2^31", file(kModel, R"(,"added_tokens":[{"id":2147483648,"content":"x"}])"),
           "2147483648"),
      json("added token on another's id", file(kModel, R"(,"added_tokens":[{"id":0,"content":"x"}])"), "the same id"),
      json("added token twice", file(kModel, R"(,"added_tokens":[{"id":4,"content":"x"},{"id":4,"content":"x"}])"),
           nullptr),
      json("added token at two ids", file(kModel, R"(,"added_tokens":[{"id":4,"content":"x"},{"id":5,"content":"x"}])"),
           nullptr),
      json("added tokens an object", file(kModel, R"(,"added_tokens":{})"), "'['"),
      json("added token a string", file(kModel, R"(,"added_tokens":["x"])"), "'{'"),
      json("added token flag a number", file(kModel, R"(,"added_tokens":[{"id":4,"content":"x","special":1}])"),
           "true or false"),
      {"a million added tokens", [] { return file(kModel, ",\"added_tokens\":" + many_added(1000000)); },
       "added tokens"},
      {"20,000 added tokens", [] { return file(kModel, ",\"added_tokens\":" + many_added(20000)); }, nullptr},
      {"an added token of a megabyte",
       [] { return file(kModel, ",\"added_tokens\":[{\"id\":4,\"content\":\"" + std::string(1 << 20, 'a') + "\"}]"); },
       "at most 512"},
      json("unknown normalizer", with("normalizer", R"({"type":"Rot13"})"), "Rot13"),
      json("normalizer precompiled", with("normalizer", R"({"type":"Precompiled","precompiled_charsmap":"AAAA"})"),
           "Precompiled"),
      json("normalizer without type", with("normalizer", "{}"), "type"),
      json("normalizer a string", with("normalizer", "\"NFC\""), "object"),
      json("normalizer a number", with("normalizer", "3"), "object"),
      json("sequence without normalizers", with("normalizer", R"({"type":"Sequence"})"), "array"),
      json("replace without pattern", with("normalizer", R"({"type":"Replace","content":"x"})"), "pattern"),
      json("replace nothing", with("normalizer", R"({"type":"Replace","pattern":{"String":""},"content":"x"})"),
           nullptr),
      {"replace one letter by a thousand",
       [] {
         return with("normalizer",
                     R"({"type":"Replace","pattern":{"String":"a"},"content":")" + std::string(1000, 'a') + "\"}");
       },
       "64 times"},
      {"double a text twenty times",
       [] {
         std::string one = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})", all = one;
         for (int i = 1; i < 20; ++i) all += "," + one;
         return with("normalizer", R"({"type":"Sequence","normalizers":[)" + all + "]}");
       },
       "64 times"},
      {"33 normalizers",
       [] {
         return with("normalizer",
                     R"({"type":"Sequence","normalizers":[{"type":"NFC"})" + repeated(R"(,{"type":"NFC"})", 32) + "]}");
       },
       "more than 32"},
      json("prepend a number", with("normalizer", R"({"type":"Prepend","prepend":3})"), "a string"),
      json("strip with a text flag", with("normalizer", R"({"type":"Strip","strip_left":"yes"})"), "true or false"),
      json("unknown pre-tokenizer", with("pre_tokenizer", R"({"type":"UnicodeScripts"})"), "UnicodeScripts"),
      json("two byte levels",
           with("pre_tokenizer", R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"ByteLevel"}]})"),
           "two ByteLevel"),
      json("behavior unknown",
           with("pre_tokenizer", R"({"type":"Split","pattern":{"String":"a"},"behavior":"Shredded","invert":false})"),
           "Isolated"),
      json("split without pattern", with("pre_tokenizer", R"({"type":"Split","behavior":"Isolated"})"), "pattern"),
      json("split on nothing",
           with("pre_tokenizer", R"({"type":"Split","pattern":{"String":""},"behavior":"Isolated","invert":false})"),
           nullptr),
      json("metaspace of a word",
           with("pre_tokenizer", R"({"type":"Metaspace","replacement":"space!","prepend_scheme":"always"})"),
           "one character"),
      json("metaspace of nothing",
           with("pre_tokenizer", R"({"type":"Metaspace","replacement":"","prepend_scheme":"always"})"),
           "one character"),
      json("metaspace of an unknown scheme",
           with("pre_tokenizer", R"({"type":"Metaspace","replacement":"_","prepend_scheme":"never ever"})"),
           "always, first or never"),
      json("regex that does not compile", split_on("(("), "does not compile"),
      json("regex with a bad range", split_on("[z-a]"), "does not compile"),
      json("regex with a bad property", split_on("\\\\p{Nonsense}"), "does not compile"),
      json("regex reading single bytes", split_on("\\\\C"), "does not compile"),
      {"regex of ten kilobytes", [] { return split_on(std::string(10240, 'a')); }, "at most"},
      {"regex of 500 nested groups", [] { return split_on(repeated("(", 500) + "a" + repeated(")", 500)); },
       "does not compile"},
      json("regex with a huge repeat", split_on("(a{1,65000}){1,65000}"), "does not compile"),
      json("regex with a set within a set", split_on("[a[bc]]"), "within a set"),
      json("regex with a cut of sets", split_on("[a-z&&[^b]]+"), "within a set"),
      json("regex with brackets that are characters", split_on("[]a]|[^]b]|[\\\\[&]|[[:alpha:]&]|\\\\[a&&b"), nullptr),
      json("regex that explodes", split_on("(a+)+$"), nullptr),
      json("regex that explodes backwards", split_on("(?<=a)(a|aa)+b"), nullptr),
      json("regex of back references", split_on("(.*)\\\\1{4}x"), nullptr),
      json("regex that recurses for ever", split_on("(?R)?a*"), nullptr),
      json("regex of empty matches", split_on("a*?"), nullptr),
      json("regex that resets its begin", split_on("(?=a\\\\K)"), "does not compile"),
      json("regex of an empty expression", split_on(""), nullptr),
      json("unknown post-processor", with("post_processor", R"({"type":"Mystery"})"), "Mystery"),
      json(
          "template with an undefined token",
          with(
              "post_processor",
              R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"X","type_id":0}}],"special_tokens":{}})"),
          "does not define"),
      json("template with a second text",
           with("post_processor",
                R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"B","type_id":0}}],"special_tokens":{}})"),
           "second"),
      json(
          "template with ids past the end",
          with(
              "post_processor",
              R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"X","type_id":0}}],"special_tokens":{"X":{"id":"X","ids":[77],"tokens":["X"]}}})"),
          "not in the vocabulary"),
      json(
          "template with negative ids",
          with(
              "post_processor",
              R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"X","type_id":0}}],"special_tokens":{"X":{"id":"X","ids":[-1],"tokens":["X"]}}})"),
          "not in the vocabulary"),
      {"template that doubles 20 times",
       [] {
         std::string
             one =
                 R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{}})",
             all = one;
         for (int i = 1; i < 20; ++i) all += "," + one;
         return with("post_processor", R"({"type":"Sequence","processors":[)" + all + "]}");
       },
       "more than 1024"},
      {"template of 1025 pieces without ids",
       [] {
         std::string pieces = R"({"SpecialToken":{"id":"X"}})";
         const std::string one = "," + pieces;
         for (int i = 1; i < 1025; ++i) pieces += one;
         return with("post_processor",
                     R"({"type":"TemplateProcessing","single":[)" + pieces + R"(],"special_tokens":{"X":{"ids":[]}}})");
       },
       "more than 1024 pieces"},
      json("template with a token defined twice",
           with("post_processor", R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"X"}}],)"
                                  R"("special_tokens":{"X":{"ids":[77]},"X":{"ids":[]}}})"),
           nullptr),
      json("bert processing without sep", with("post_processor", R"({"type":"BertProcessing","cls":["a",0]})"), "sep"),
      json("unknown decoder", with("decoder", R"({"type":"CTC"})"), "CTC"),
      json("decoder with a regex", with("decoder", R"({"type":"Replace","pattern":{"Regex":"a"},"content":"b"})"),
           "regular expression"),
      json("decoder strip of minus one", with("decoder", R"({"type":"Strip","content":" ","start":-1,"stop":0})"),
           "not negative"),
      json("decoder replace by itself",
           with("decoder", R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})"), nullptr),
  };
}

TEST(HostileTokenizerJson, EachEndsInASentenceOrWorks) {
  size_t n_cases = 0;
  for (const JsonCase& c : json_cases()) {
    std::string text = c.make();
    Bounds bounds(c.name);
    auto made = Tokenizer::from_json(text);
    ++n_cases;
    if (c.says) {
      ASSERT_FALSE(made.ok()) << c.name;
      expect_sentence(made.error(), c.name);
      EXPECT_NE(made.error().message.find(c.says), std::string::npos) << c.name << ": " << made.error().message;
    } else {
      ASSERT_TRUE(made.ok()) << c.name << ": " << made.error().message;
      use(**made, c.name);
    }
  }
  EXPECT_GE(n_cases, 120u);
}

TEST(HostileTokenizerJson, EveryPrefixOfAFileIsRefused) {
  std::string whole = file(kModel, R"(,"added_tokens":[{"id":4,"content":"x"}],"normalizer":{"type":"NFC"})");
  ASSERT_TRUE(Tokenizer::from_json(whole).ok());
  for (size_t n = 0; n < whole.size(); ++n) {
    auto made = Tokenizer::from_json(std::string_view(whole).substr(0, n));
    ASSERT_FALSE(made.ok()) << n;
    expect_sentence(made.error(), "prefix");
  }
}

TEST(HostileTokenizerJson, BadConfigsAreRefused) {
  for (std::string_view config : {"[]", "1", "{", "nul", "{\"a\":}"}) {
    EXPECT_FALSE(Tokenizer::from_json(file(), config).ok()) << config;
  }
  for (std::string_view config :
       {"{}", R"({"bos_token":7,"eos_token":{"content":[]},"chat_template":[{},3,{"name":"x"}]})"}) {
    EXPECT_TRUE(Tokenizer::from_json(file(), config).ok()) << config;
  }
}

// --- texts --------------------------------------------------------------------------------------------------------

void encode_long_texts(size_t n) {
  std::vector<std::shared_ptr<const Tokenizer>> tokenizers;
  for (VocabularyModel model : {VocabularyModel::kSentencePieceBpe, VocabularyModel::kUnigram}) {
    tokenizers.push_back(*Tokenizer::from_vocabulary(pieces_vocabulary(model)));
  }
  for (const char* pre :
       {"gpt-2",       "smollm", "mpt",      "falcon",   "llama-bpe", "qwen2",   "deepseek-llm", "deepseek-coder",
        "deepseek-v3", "gpt-4o", "tekken",   "bloom",    "viking",    "default", "qwen35",       "kimi-k2",
        "exaone-moe",  "jais-2", "tiny_aya", "superbpe", "afmoe",     "youtu",   "spark2_5",     "chameleon"}) {
    Vocabulary v = bytes_vocabulary();
    v.pre_tokenizer = pre;
    // A run's pairs merge to the end: the longest chains of merges.
    for (size_t len = 2; len <= 64; len *= 2) {
      v.tokens.push_back(std::string(len, 'q'));
      v.types.push_back(TokenType::kNormal);
      v.merges.push_back(std::string(len / 2, 'q') + " " + std::string(len / 2, 'q'));
    }
    tokenizers.push_back(*Tokenizer::from_vocabulary(v));
  }
  tokenizers.push_back(*Tokenizer::from_json(split_on("(a+)+$")));
  const std::pair<const char*, std::string> kTexts[] = {
      {"letters", std::string(n, 'q')},
      {"other letters", std::string(n, 'a')},
      {"spaces", std::string(n, ' ')},
      {"line ends", std::string(n, '\n')},
      {"spaces and line ends", repeated(" \n", n / 2)},
      {"digits", std::string(n, '7')},
      {"apostrophes", std::string(n, '\'')},
      {"digits that a letter ends", std::string(n - 1, '7') + "x"},
      {"numbers and letters", repeated("1234x ", n / 6)},
      {"spaces before a letter", std::string(n - 1, ' ') + "x"},
      {"emoji", repeated("\xF0\x9F\x98\x80", n / 4)},
      {"combining marks", "e" + repeated("\xCC\x81", n / 2)},
      {"marks of falling classes", "e" + repeated("\xCD\x85\xCC\x81\xCC\xB4", n / 6)},
      {"capital and small", repeated("aB", n / 2)},
      {"uncased and capital", repeated("\xE4\xB8\xAD"
                                       "A",
                                       n / 4)},
      {"invalid bytes", std::string(n, '\xFF')},
      {"half code points", repeated("\xF0\x9F", n / 2)},
      {"nuls", std::string(n, '\0')},
      {"special tokens", repeated("<|end|>", n / 7)},
      {"almost special tokens", repeated("<|end|", n / 6)},
  };
  for (const auto& [what, text] : kTexts) {
    for (size_t k = 0; k < tokenizers.size(); ++k) {
      std::string name =
          std::string(what) + " with " + tokenizers[k]->vocabulary().pre_tokenizer + " " + std::to_string(k);
      Bounds bounds(name);
      std::vector<TokenId> ids;
      tokenizers[k]->encode(text, {.parse_special = true}, ids);
      EXPECT_FALSE(ids.empty() && k < 2) << name;
    }
  }
}

TEST(HostileText, LongRunsOfAnythingAreEncodedInTime) { encode_long_texts(kMeasured ? 50'000 : 5'000); }
TEST(SlowHostileText, AMegabyteOfAnythingIsEncodedInTime) { encode_long_texts(kMeasured ? 1'000'000 : 100'000); }

}  // namespace
}  // namespace ibid
