// Masks of real schemas over real vocabularies:
//   grammar_bench [--tight] [--times N] [--walks FILE] VOCABULARY... -- SCHEMA...
// VOCABULARY is a GGUF file, a tokenizer.json, or a file of lines "base64 of a token, its id". SCHEMA is a file of JSON
// Schema. For each, a grammar is compiled (not strict), then answers are walked under its masks, with half of the
// tokens punctuation where it is possible and all caches of masks cold at first; the table has the thread's CPU time in
// microseconds of each first and later mask, and of each compilation, and the memory of compiling as its fuel counts
// it. --times repeats everything from cold, and each figure is the least of its N, so that other processes count
// little. --walks writes a line for each answer: the schema's file and the tokens.
#include <time.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>
#include <unordered_set>

#include "format/gguf.h"
#include "format/gguf_vocabulary.h"
#include "sample/grammar/json_schema.h"
#include "sample/grammar/token_masks.h"
#include "text/tokenizer/tokenizer.h"

namespace {

using namespace ibid::grammar;

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

double microseconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

std::vector<std::string> ranks(const std::string& text) {
  static const std::string kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::string> words;
  std::istringstream lines(text);
  size_t id = 0;
  for (std::string word; lines >> word >> id;) {
    std::string bytes;
    uint32_t bits = 0;
    int n = 0;
    for (char c : word) {
      if (c == '=') break;
      bits = bits << 6 | static_cast<uint32_t>(kLetters.find(c));
      n += 6;
      if (n >= 8) n -= 8, bytes += static_cast<char>(bits >> n & 255);
    }
    if (words.size() <= id) words.resize(id + 1);
    words[id] = bytes;
  }
  return words;
}

std::vector<std::string> vocabulary(const std::string& path) {
  ibid::Result<std::shared_ptr<const ibid::Tokenizer>> tokenizer = ibid::invalid("");
  if (path.ends_with(".gguf")) {
    auto file = ibid::open_gguf(path);
    if (!file) return {};
    auto words = ibid::vocabulary_from_gguf(*file);
    if (words) tokenizer = ibid::Tokenizer::from_vocabulary(*std::move(words));
  } else if (path.ends_with(".json")) {
    tokenizer = ibid::Tokenizer::from_json(read(path));
  } else {
    return ranks(read(path));
  }
  std::vector<std::string> words;
  for (int t = 0; tokenizer && t < (*tokenizer)->vocab_size(); ++t)
    words.emplace_back((*tokenizer)->token_bytes(ibid::TokenId{t}));
  return words;
}

// One of the tokens of `mask`; of those that are `marks` too, if it should be and there are such. -1: none.
ibid::TokenId pick(std::span<const uint32_t> mask, std::span<const uint32_t> marks, bool should_mark,
                   std::mt19937& rng) {
  size_t n = 0, n_marks = 0;
  for (size_t w = 0; w < mask.size(); ++w) {
    n += static_cast<size_t>(std::popcount(mask[w]));
    n_marks += static_cast<size_t>(std::popcount(mask[w] & marks[w]));
  }
  if (n == 0) return ibid::TokenId{-1};
  const bool is_mark = should_mark && n_marks > 0;
  size_t at = rng() % (is_mark ? n_marks : n);
  for (size_t w = 0;; ++w) {
    uint32_t bits = is_mark ? mask[w] & marks[w] : mask[w];
    const auto here = static_cast<size_t>(std::popcount(bits));
    if (at >= here) {
      at -= here;
      continue;
    }
    for (; at > 0; --at) bits &= bits - 1;
    return ibid::TokenId{static_cast<int32_t>(32 * w) + std::countr_zero(bits)};
  }
}

void print(const char* name, std::vector<double>& times) {
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  auto at = [&](double share) {
    return times[std::min(times.size() - 1, static_cast<size_t>(share * static_cast<double>(times.size())))];
  };
  std::printf("  %-14s %8zu  p50 %9.1f  p99 %9.1f  p99.9 %9.1f  max %9.1f\n", name, times.size(), at(0.5), at(0.99),
              at(0.999), times.back());
}

// One replay of a schema: the CPU time of each mask, whether it was its state's first, and the tokens that were drawn.
struct Replay {
  std::vector<double> times;
  std::vector<bool> is_first;
  std::vector<std::vector<int32_t>> walks;
};

Replay replay(std::shared_ptr<const Automaton> automaton, std::shared_ptr<const TokenTrie> trie,
              std::span<const uint32_t> marks, bool is_tight) {
  Replay done;
  TokenMasks masks(std::move(automaton), trie, 256 << 20);
  std::mt19937 rng(7);
  std::vector<uint32_t> mask(trie->mask_words());
  std::unordered_set<StateId> met;  // a state's mask is kept: nothing is forgotten within so large a budget
  for (int walk = 0; walk < 2; ++walk) {
    done.walks.emplace_back();
    StateId state = kInitial;
    for (uint32_t left = 200; left > 0 && state != kDead; --left) {
      const double before = microseconds();
      masks.fill(state, mask, is_tight ? left + 100 : TokenMasks::kNoLimit);
      done.times.push_back(microseconds() - before);
      done.is_first.push_back(met.insert(state).second);
      const ibid::TokenId token = pick(mask, marks, rng() % 2 == 0, rng);
      if (raw(token) < 0) break;
      done.walks.back().push_back(raw(token));
      state = masks.after(state, token);
    }
  }
  return done;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> vocabularies, files;
  bool is_schema = false, is_tight = false;
  int n_times = 1;
  std::ofstream walks;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--tight") {
      is_tight = true;
    } else if (word == "--times" && i + 1 < argc) {
      n_times = std::max(1, std::atoi(argv[++i]));
    } else if (word == "--walks" && i + 1 < argc) {
      walks.open(argv[++i]);
    } else if (word == "--") {
      is_schema = true;
    } else {
      (is_schema ? files : vocabularies).push_back(word);
    }
  }
  for (const std::string& path : vocabularies) {
    const std::vector<std::string> words = vocabulary(path);
    const double begin_trie = microseconds();
    auto trie = std::make_shared<const TokenTrie>(std::vector<std::string_view>(words.begin(), words.end()));
    std::printf("%s: %zu tokens, trie %.0f ms\n", path.c_str(), words.size(), (microseconds() - begin_trie) / 1e3);
    std::vector<uint32_t> marks(trie->mask_words());
    for (size_t t = 0; t < words.size(); ++t)
      if (words[t].size() < 4 && words[t].find_first_of("\",:{}[]") != std::string::npos) marks[t / 32] |= 1u << t % 32;
    std::vector<double> compile, refused, masks_all, first, later;
    std::vector<std::pair<int64_t, std::string>> held;  // by compiling each
    for (const std::string& file : files) {
      const std::string schema = read(file);
      double best = 0;
      ibid::Result<Automaton> automaton = ibid::invalid("");
      for (int i = 0; i < n_times; ++i) {
        const double begin = microseconds();
        Fuel fuel;
        Grammar grammar(fuel);
        SchemaOptions options;
        options.is_strict = false;
        auto root = read_json_schema(schema, options, grammar);
        automaton =
            root ? Automaton::compile(grammar, {.bytes = trie->single_bytes()}) : ibid::Result<Automaton>(root.error());
        const double time = microseconds() - begin;
        if (i == 0) held.push_back({fuel.most_held(), file});
        best = i == 0 ? time : std::min(best, time);
      }
      (automaton ? compile : refused).push_back(best);
      if (!automaton) {
        std::printf("  refused: %s: %.150s\n", file.c_str(), automaton.error().message.c_str());
        continue;
      }
      auto shared = std::make_shared<const Automaton>(*std::move(automaton));
      Replay least = replay(shared, trie, marks, is_tight);
      for (int i = 1; i < n_times; ++i) {
        const Replay again = replay(shared, trie, marks, is_tight);
        for (size_t m = 0; m < again.times.size(); ++m) least.times[m] = std::min(least.times[m], again.times[m]);
      }
      masks_all.insert(masks_all.end(), least.times.begin(), least.times.end());
      for (size_t m = 0; m < least.times.size(); ++m) (least.is_first[m] ? first : later).push_back(least.times[m]);
      for (const std::vector<int32_t>& walk : least.walks) {
        walks << file;
        for (int32_t token : walk) walks << ' ' << token;
        walks << '\n';
      }
    }
    std::printf("  %zu schemas, %zu refused\n", files.size(), refused.size());
    print("compile", compile);
    print("refuse", refused);
    print("masks", masks_all);
    print("first masks", first);
    print("later masks", later);
    if (held.empty()) continue;
    std::sort(held.begin(), held.end());
    std::printf("  %-14s %8zu  p50 %9.2f  p99 %9.2f  max %9.2f MiB, of %s\n", "memory", held.size(),
                static_cast<double>(held[held.size() / 2].first) / (1 << 20),
                static_cast<double>(held[held.size() * 99 / 100].first) / (1 << 20),
                static_cast<double>(held.back().first) / (1 << 20), held.back().second.c_str());
  }
}
