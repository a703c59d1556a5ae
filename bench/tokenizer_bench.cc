// Tokenizers from the command line, for bench/tokenizer_bench.py and tools/make_tokenizers.py:
//   tokenizer_bench time TOKENIZER TEXT [SECONDS]   MB/s of the best of several encodings of the whole file
//   tokenizer_bench load TOKENIZER                  ms to load, best of five
//   tokenizer_bench load N                          the same for made-up vocabularies of N tokens, in every form
//   tokenizer_bench runs TOKENIZER TEXT             ns per byte: the text, and 1 MB runs beside it
//   tokenizer_bench ids TOKENIZER TEXTS             ids of many texts (each with its length in four bytes), a line
//   each;
//                                                   odd ones with special text parsed and special tokens added
// TOKENIZER is a tokenizer.json or a GGUF file.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <unordered_set>

#include "format/gguf.h"
#include "format/gguf_vocabulary.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/tokenizer.h"

namespace {

using ibid::TokenId;
using Clock = std::chrono::steady_clock;

std::string read(const char* path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  std::string bytes(in ? static_cast<size_t>(in.tellg()) : 0, '\0');
  in.seekg(0).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

ibid::Result<std::shared_ptr<const ibid::Tokenizer>> load(const std::string& path) {
  if (!path.ends_with(".gguf")) return ibid::Tokenizer::from_json(read(path.c_str()));
  ASSIGN_OR_RETURN(ibid::ModelFile file, ibid::open_gguf(path));
  ASSIGN_OR_RETURN(ibid::Vocabulary vocabulary, ibid::vocabulary_from_gguf(file));
  return ibid::Tokenizer::from_vocabulary(std::move(vocabulary));
}

double best_seconds(const ibid::Tokenizer& tokenizer, const std::string& text, double at_least,
                    size_t* n_ids = nullptr) {
  std::vector<TokenId> ids;
  double best = 1e9;
  Clock::time_point begin = Clock::now();
  for (int i = 0; i < 3 || seconds_since(begin) < at_least; ++i) {
    ids.clear();
    Clock::time_point from = Clock::now();
    tokenizer.encode(text, {}, ids);
    best = std::min(best, seconds_since(from));
  }
  if (n_ids) *n_ids = ids.size();
  return best;
}

// A byte-level vocabulary of n tokens whose merges join letters and random earlier tokens, up to 16 bytes.
ibid::Vocabulary made_up(size_t n) {
  ibid::Vocabulary v;
  v.pre_tokenizer = "gpt-2";
  std::unordered_set<std::string> known;
  for (int b = 0; b < 256; ++b) {
    std::string token;
    ibid::byte_alphabet::append_spelled(std::string(1, static_cast<char>(b)), token);
    v.tokens.push_back(token);
    known.insert(token);
  }
  std::minstd_rand draw(1);
  std::string_view letters = "  eeeetttaaaooiinnsshhrrddlluucmfywgpbvk,.ETAS01";
  auto pick = [&]() -> const std::string& {
    if (draw() % 2 == 0) return v.tokens[static_cast<size_t>(draw()) % v.tokens.size()];
    return v.tokens[static_cast<unsigned char>(letters[draw() % letters.size()])];
  };
  while (v.tokens.size() < n) {
    std::string left = pick(), right = pick();
    if (left.size() + right.size() > 16 || !known.insert(left + right).second) continue;
    v.merges.push_back(left + " " + right);
    v.tokens.push_back(left + right);
  }
  return v;
}

// As the reference writes it, indented; merges as pairs or as one text each.
std::string json_of(const ibid::Vocabulary& v, bool pairs) {
  auto quoted = [](std::string_view s) {
    std::string q = "\"";
    for (char c : s) q += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
    return q + '"';
  };
  std::string json = R"({
  "version": "1.0",
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "decoder": {"type": "ByteLevel"},
  "model": {
    "type": "BPE",
    "vocab": {)";
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    json += (i ? ",\n      " : "\n      ") + quoted(v.tokens[i]) + ": " + std::to_string(i);
  }
  json += "\n    },\n    \"merges\": [";
  for (size_t i = 0; i < v.merges.size(); ++i) {
    std::string_view m = v.merges[i];
    size_t space = m.find(' ');
    json += i ? ",\n      " : "\n      ";
    json += pairs
                ? "[\n        " + quoted(m.substr(0, space)) + ",\n        " + quoted(m.substr(space + 1)) + "\n      ]"
                : quoted(m);
  }
  return json + "\n    ]\n  }\n}\n";
}

int load_made_up(size_t n) {
  ibid::Vocabulary bytes = made_up(n), pieces = bytes;
  pieces.model = ibid::VocabularyModel::kSentencePieceBpe;
  pieces.merges.clear();
  pieces.tokens[0] = "<unk>";
  pieces.unknown = static_cast<TokenId>(0);
  for (size_t i = 0; i < n; ++i) pieces.scores.push_back(-static_cast<float>(i));
  ibid::Vocabulary unigram = pieces;
  unigram.model = ibid::VocabularyModel::kUnigram;
  std::string lines = json_of(bytes, false), pairs = json_of(bytes, true);
  auto time = [](const char* name, auto&& make) {
    double best = 1e9;
    for (int i = 0; i < 10; ++i) best = std::min(best, make());
    std::printf("%-28s %.1f ms\n", name, best * 1e3);
  };
  auto of_vocabulary = [](const ibid::Vocabulary& v) {
    ibid::Vocabulary copy = v;
    Clock::time_point from = Clock::now();
    auto made = ibid::Tokenizer::from_vocabulary(std::move(copy));
    double seconds = seconds_since(from);
    return made ? seconds : 1e9;
  };
  auto of_json = [](const std::string& json) {
    Clock::time_point from = Clock::now();
    auto made = ibid::Tokenizer::from_json(json);
    double seconds = seconds_since(from);
    return made ? seconds : 1e9;
  };
  time("GGUF's BPE over bytes", [&] { return of_vocabulary(bytes); });
  time("GGUF's SentencePiece BPE", [&] { return of_vocabulary(pieces); });
  time("GGUF's unigram", [&] { return of_vocabulary(unigram); });
  time("tokenizer.json, lines", [&] { return of_json(lines); });
  time("tokenizer.json, pairs", [&] { return of_json(pairs); });
  return 0;
}

int runs(const ibid::Tokenizer& tokenizer, const std::string& text) {
  auto repeated = [](std::string_view s) {
    std::string all;
    while (all.size() < 1000000) all += s;
    return all;
  };
  double prose = best_seconds(tokenizer, text.substr(0, 1000000), 0.5) /
                 static_cast<double>(std::min<size_t>(1000000, text.size()));
  std::printf("prose %.1f ns/byte\n", prose * 1e9);
  const std::pair<const char*, std::string> kRuns[] = {{"letter", repeated("a")},
                                                       {"spaces", repeated(" ")},
                                                       {"emoji", repeated("\xF0\x9F\x98\x80")},
                                                       {"dashes", repeated("-")}};
  for (const auto& [name, run] : kRuns) {
    double each = best_seconds(tokenizer, run, 0.5) / static_cast<double>(run.size());
    std::printf("%s %.1f ns/byte, %.2f of prose\n", name, each * 1e9, each / prose);
  }
  return 0;
}

int ids(const ibid::Tokenizer& tokenizer, const std::string& texts) {
  std::string line;
  std::vector<TokenId> out;
  size_t at = 0;
  for (int i = 0; at + 4 <= texts.size(); ++i) {
    uint32_t len = 0;
    std::memcpy(&len, texts.data() + at, 4);
    out.clear();
    tokenizer.encode(std::string_view(texts).substr(at + 4, len),
                     {.add_special = i % 2 == 1, .parse_special = i % 2 == 1}, out);
    at += 4 + size_t{len};
    line.clear();
    for (TokenId id : out) line += std::to_string(raw(id)) + " ";
    std::puts(line.c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string mode = argc > 2 ? argv[1] : "";
  if (mode.empty() || (mode != "load" && argc < 4)) {
    std::fprintf(stderr, "usage: tokenizer_bench time|load|runs|ids TOKENIZER [TEXT]\n");
    return 2;
  }
  if (mode == "load" && std::atol(argv[2]) > 256) return load_made_up(static_cast<size_t>(std::atol(argv[2])));
  auto made = load(argv[2]);
  if (!made) {
    std::fprintf(stderr, "%s\n", made.error().message.c_str());
    return 1;
  }
  if (mode == "load") {
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      Clock::time_point from = Clock::now();
      auto again = load(argv[2]);
      best = std::min(best, seconds_since(from));
    }
    std::printf("%.1f ms for %d tokens\n", best * 1e3, (*made)->vocab_size());
    return 0;
  }
  std::string text = read(argv[3]);
  if (mode == "runs") return runs(**made, text);
  if (mode == "ids") return ids(**made, text);
  size_t n_ids = 0;
  double best = best_seconds(**made, text, argc > 4 ? std::atof(argv[4]) : 2.0, &n_ids);
  std::printf("%.2f MB/s %zu ids\n", static_cast<double>(text.size()) / best / 1e6, n_ids);
  return 0;
}
