// A sweep over damaged vocabularies: GGUF files and tokenizer.json files made from a seed, most of them wrong in
// several ways at once. Each is refused by a sentence or read, and what is read encodes and decodes a few texts, all
// within a bound of the processor's time. A failure names its seed.
#include <gtest/gtest.h>

#include <random>

#include "format/gguf_vocabulary.h"
#include "hostile/limits.h"
#include "hostile/raw_gguf.h"
#include "temp_folder.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid {
namespace {

constexpr double kSecondsPerFile = 1.0;

class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(seed) {}
  size_t below(size_t n) { return static_cast<size_t>(random_()) % n; }
  bool chance(size_t one_in) { return below(one_in) == 0; }
  template <typename T, size_t n>
  const T& of(const T (&items)[n]) {
    return items[below(n)];
  }
  // Mostly small, now and then huge.
  size_t length() { return chance(60) ? 1 + below(200'000) : chance(8) ? below(300) : below(6); }

  std::string text() {
    static const std::string kParts[] = {"a",      "b",       "ab",    " ",  "\u2581", "\u0120",           "0",
                                         "\u00E9", "e\u0301", "\n",    "##", "</",     "\xF0\x9F\x98\x80", "<0x41>",
                                         "\u4E2D", "'",       "\u017F"};
    const std::string& part = of(kParts);
    std::string out;
    for (size_t n = length(); n > 0; --n) out += part;
    if (chance(3)) out += of(kParts);
    return out;
  }
  std::string token(size_t i) { return chance(500) ? text() : text() + std::to_string(i); }

  // --- tokenizer.json
  static std::string quoted(std::string_view s) {
    std::string out = "\"";
    for (char c : s) {
      if (c == '\n') {
        out += "\\n";
        continue;
      }
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    return out + '"';
  }
  std::string flag() { return chance(2) ? "true" : "false"; }
  std::string expression() {
    static const char* const kExpressions[] = {
        "(a+)+[bc]", "(a|aa)+$",   "\\\\p{L}+|\\\\s+", "[^ ]*", "(?=a)",
        "a*?",       "(.*)\\\\1b", "(?:a|b|e)+",       ".",     "(?<!a)b|(a(b|a)*)*c"};
    return of(kExpressions);
  }
  std::string pattern() {
    return chance(3) ? R"({"Regex":")" + expression() + "\"}" : R"({"String":)" + quoted(text()) + "}";
  }
  std::string normalizer() {
    switch (below(6)) {
      case 0: {
        static const char* const kPlain[] = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"};
        return std::string(R"({"type":")") + of(kPlain) + "\"}";
      }
      case 1:
        return R"({"type":"Prepend","prepend":)" + quoted(text()) + "}";
      case 2:
        return R"({"type":"Strip","strip_left":)" + flag() + R"(,"strip_right":)" + flag() + "}";
      case 3:
        return R"({"type":"BertNormalizer","clean_text":)" + flag() + R"(,"lowercase":)" + flag() + "}";
      default:
        return R"({"type":"Replace","pattern":)" + pattern() + R"(,"content":)" + quoted(text()) + "}";
    }
  }
  std::string pre_tokenizer() {
    static const char* const kBehaviors[] = {"Removed", "Isolated", "Contiguous", "MergedWithPrevious",
                                             "MergedWithNext"};
    static const char* const kPlain[] = {"Whitespace", "WhitespaceSplit", "BertPreTokenizer", "Punctuation", "Digits"};
    static const char* const kMarks[] = {"\u2581", "x", "    ", " ", "", "ab"};
    static const char* const kSchemes[] = {"always", "first", "never"};
    switch (below(5)) {
      case 0:
        return std::string(R"({"type":")") + of(kPlain) + "\"}";
      case 1:
        return std::string(R"({"type":"Metaspace","replacement":")") + of(kMarks) + R"(","prepend_scheme":")" +
               of(kSchemes) + R"(","split":)" + flag() + "}";
      case 2:
        return R"({"type":"ByteLevel","add_prefix_space":)" + flag() + R"(,"use_regex":)" + flag() + "}";
      default:
        return R"({"type":"Split","pattern":)" + pattern() + R"(,"behavior":")" + of(kBehaviors) + R"(","invert":)" +
               flag() + "}";
    }
  }
  std::string decoder() {
    static const char* const kPlain[] = {"ByteLevel", "ByteFallback", "Fuse", "WordPiece", "BPEDecoder", "Metaspace"};
    switch (below(3)) {
      case 0:
        return std::string(R"({"type":")") + of(kPlain) + "\"}";
      case 1:
        return R"({"type":"Strip","content":)" + quoted(text()) + R"(,"start":)" + std::to_string(below(1u << 30)) +
               R"(,"stop":)" + std::to_string(below(1u << 30)) + "}";
      default:
        return R"({"type":"Replace","pattern":)" + (chance(20) ? pattern() : R"({"String":)" + quoted(text()) + "}") +
               R"(,"content":)" + quoted(text()) + "}";
    }
  }
  std::string steps(const char* key, std::string (Maker::*one)(), int depth = 0) {
    if (chance(6)) return "null";
    if (depth < 12 && !chance(3)) {
      std::string all = R"({"type":"Sequence",")" + std::string(key) + "\":[";
      size_t n = chance(8) ? below(40) : 1 + below(4);
      std::string repeated = (this->*one)();
      bool same = chance(3);
      for (size_t i = 0; i < n; ++i) {
        all += (i > 0 ? "," : "") + (same ? repeated : chance(5) ? steps(key, one, depth + 1) : (this->*one)());
      }
      return all + "]}";
    }
    return (this->*one)();
  }
  std::string json() {
    static const char* const kModels[] = {"BPE", "BPE", "Unigram", "WordPiece", "WordLevel"};
    std::string type = of(kModels), vocab, merges, first = "a", second = "b";
    bool scored = (type == "Unigram") != chance(20);
    size_t n = 4 + below(60);
    for (size_t i = 0; i < n; ++i) {
      std::string t = i == 0 ? "a" : i == 1 ? "b" : i == 2 ? "ab" : i == 3 ? "<u>" : token(i);
      vocab += i > 0 ? "," : "";
      vocab += scored ? "[" + quoted(t) + ",-" + std::to_string(below(100)) + ".5]"
                      : quoted(t) + ":" + std::to_string(chance(100) ? below(1u << 30) : i);
    }
    merges = "\"a b\"";
    for (size_t k = chance(3) ? below(2000) : 0; k > 0; --k) merges += ",\"a b\"";
    std::string added;
    for (size_t k = chance(2) ? 1 + below(20) : 0; k > 0; --k) {
      added += (added.empty() ? "" : ",") + std::string(R"({"id":)") + std::to_string(n + k) + R"(,"content":)" +
               quoted(token(k)) + R"(,"normalized":)" + flag() + R"(,"lstrip":)" + flag() + R"(,"rstrip":)" + flag() +
               R"(,"single_word":)" + flag() + R"(,"special":)" + flag() + "}";
    }
    std::string model = R"({"type":")" + type + R"(","unk_token":"<u>")";
    if (type == "Unigram") model = R"({"type":"Unigram","unk_id":3)";
    if (chance(6)) model += R"(,"continuing_subword_prefix":)" + quoted(text());
    if (chance(6)) model += R"(,"end_of_word_suffix":)" + quoted(text());
    if (chance(4)) model += R"(,"max_input_chars_per_word":)" + std::to_string(below(1u << 30));
    model += R"(,"byte_fallback":)" + flag() + R"(,"fuse_unk":)" + flag() + R"(,"ignore_merges":)" + flag() +
             R"(,"vocab":)" + (scored ? "[" + vocab + "]" : "{" + vocab + "}");
    if (type == "BPE") model += R"(,"merges":[)" + merges + "]";
    return R"({"added_tokens":[)" + added + R"(],"normalizer":)" + steps("normalizers", &Maker::normalizer) +
           R"(,"pre_tokenizer":)" + steps("pretokenizers", &Maker::pre_tokenizer) + R"(,"decoder":)" +
           steps("decoders", &Maker::decoder) + R"(,"model":)" + model + "}}";
  }

  // --- GGUF
  std::string gguf() {
    static const char* const kModels[] = {"gpt2", "llama", "t5", "bert", "gemma4"};
    static const char* const kNames[] = {"gpt-2",      "llama-bpe", "qwen2",  "qwen35",  "kimi-k2",
                                         "exaone-moe", "superbpe",  "gemma4", "default", "nobody"};
    size_t n = 3 + below(400);
    RawBytes tokens, scores, types, merges;
    for (size_t i = 0; i < n; ++i) {
      std::string spelled = i < 3 ? std::string(1, static_cast<char>('a' + i)) : token(i);
      tokens.string(spelled);
      scores.f32(chance(2000) ? std::bit_cast<float>(static_cast<uint32_t>(random_())) : -static_cast<float>(below(9)));
      // Special tokens may not be long, and a file with one that is ends there.
      int32_t type = spelled.size() > 512 && !chance(50) ? 1 : static_cast<int32_t>(1 + below(5));
      types.put(chance(3000) ? static_cast<int32_t>(below(9)) : type);
    }
    size_t n_merges = chance(2) ? below(300) : 0;
    for (size_t k = 0; k < n_merges; ++k) merges.string(chance(500) ? text() : "a b");
    auto wrong = [&](uint64_t right) -> uint64_t { return chance(40) ? below(2 * n) : right; };
    RawGguf raw;
    raw.keys = {raw_string_key("tokenizer.ggml.model", of(kModels)), raw_string_key("tokenizer.ggml.pre", of(kNames)),
                raw_array_key("tokenizer.ggml.tokens", kRawString, wrong(n), tokens.text)};
    if (!chance(4)) raw.keys.push_back(raw_array_key("tokenizer.ggml.scores", kRawF32, wrong(n), scores.text));
    if (!chance(4)) raw.keys.push_back(raw_array_key("tokenizer.ggml.token_type", kRawI32, wrong(n), types.text));
    if (!chance(4)) raw.keys.push_back(raw_array_key("tokenizer.ggml.merges", kRawString, n_merges, merges.text));
    for (const char* key : {"bos", "eos", "unknown", "eot"}) {
      if (chance(2)) continue;
      raw.keys.push_back(raw_u32_key("tokenizer.ggml." + std::string(key) + "_token_id",
                                     static_cast<uint32_t>(chance(20) ? below(1u << 31) : below(n))));
    }
    return raw.bytes();
  }

  // A few bytes changed, a part doubled or left out.
  void damage(std::string& bytes) {
    for (size_t n = chance(3) ? 1 + below(4) : 0; n > 0 && !bytes.empty(); --n) {
      size_t at = below(bytes.size()), len = std::min(bytes.size() - at, 1 + below(chance(4) ? 1000 : 8));
      switch (below(4)) {
        case 0:
          bytes[at] = static_cast<char>(random_());
          break;
        case 1:
          bytes.erase(at, len);
          break;
        case 2:
          bytes.insert(at, bytes.substr(at, len));
          break;
        default:
          bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8));
      }
    }
  }

 private:
  std::mt19937_64 random_;
};

std::vector<std::string> texts() {
  std::string words, marks;
  for (int i = 0; i < 300; ++i) words += "aaaaaaaaaaaaaaaaaaaaaaaa! ";
  for (int i = 0; i < 500; ++i) marks += "\u2581 x##";
  return {"ab a <u> \xE4\xBD\xA0 12345", words, std::string(8000, 'a'), marks, std::string(4000, ' '), "\xFF\xC0"};
}

void use(const Tokenizer& tokenizer, const std::string& name) {
  static const std::vector<std::string> kTexts = texts();
  for (const std::string& text : kTexts) {
    std::vector<TokenId> ids = tokenizer.encode(text, {.add_special = true, .parse_special = true});
    for (TokenId id : ids) {
      ASSERT_TRUE(raw(id) >= 0 && raw(id) < tokenizer.vocab_size()) << name;
    }
    // Decoding costs what the text is long, and a token may be spelled with 64 KiB.
    size_t n = 0;
    for (size_t n_bytes = 0; n < std::min<size_t>(ids.size(), 300) && n_bytes < (1 << 20); ++n)
      n_bytes += tokenizer.token_bytes(ids[n], true).size();
    ids.resize(n);
    tokenizer.decode(ids, true);
  }
}

struct Counts {
  size_t n_read = 0, n_refused = 0;
};

void sweep(const char* kind, uint64_t first_seed, size_t n_files, Counts& counts) {
  TempFolder folder;
  const bool gguf = std::string_view(kind) == "GGUF";
  for (uint64_t seed = first_seed; seed < first_seed + n_files; ++seed) {
    const std::string name = std::string(kind) + ", seed " + std::to_string(seed);
    Maker maker(seed);
    std::string bytes = gguf ? maker.gguf() : maker.json();
    maker.damage(bytes);
    const std::string path = gguf ? folder.write("vocabulary.gguf", bytes) : "";
    const double begin = processor_seconds();
    const auto made = [&]() -> Result<std::shared_ptr<const Tokenizer>> {
      if (!gguf) return Tokenizer::from_json(bytes);
      ASSIGN_OR_RETURN(ModelFile file, ModelFile::open(path));
      ASSIGN_OR_RETURN(Vocabulary vocabulary, vocabulary_from_gguf(file));
      return Tokenizer::from_vocabulary(std::move(vocabulary));
    }();
    if (made) {
      ++counts.n_read;
      ASSERT_NO_FATAL_FAILURE(use(**made, name));
    } else {
      ++counts.n_refused;
      expect_sentence(made.error(), name);
    }
    const double seconds = processor_seconds() - begin;
    if (kMeasured) {
      ASSERT_LT(seconds, on_this_machine(kSecondsPerFile, seconds)) << name;
    }
  }
}

void sweep_both(uint64_t first_seed, size_t n_files) {
  for (const char* kind : {"GGUF", "tokenizer.json"}) {
    Counts counts;
    sweep(kind, first_seed, n_files, counts);
    // Neither half may dry up: files that are all refused at their first byte would test nothing.
    EXPECT_GT(counts.n_read * 10, n_files) << kind;
    EXPECT_GT(counts.n_refused * 10, n_files) << kind;
  }
}

TEST(TokenizerSweep, DamagedVocabulariesAreReadOrRefusedInTime) { sweep_both(1, kMeasured ? 150 : 30); }
TEST(SlowTokenizerSweep, DamagedVocabulariesAreReadOrRefusedInTime) { sweep_both(100'000, kMeasured ? 3000 : 300); }

}  // namespace
}  // namespace ibid
