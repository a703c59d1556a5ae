// What look-ahead decoding (Fu et al., "Break the Sequential Dependency of LLM Inference Using Lookahead Decoding",
// 2024) would have to draft from, on one model at temperature 0. No clock is in it:
//   lookahead_bench [--model MODEL] [--threads N] [--tokens N] [--window W] [PROMPTS]
// Each step computes W drafts after the sequence's last token. The model's tokens after them are the next step's drafts
// (Jacobi's iteration), and enter a pool as pairs, which is looked up by the last token. Reported for each kind of
// text: E, tokens a step, if the pool's chain is verified, or the window's if the pool has none; how often the first
// draft of each is accepted; and the same for only those places where the sequence's own look-up
// (spec/lookup/suffix_automaton.h) has none.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "bench/speculation_prompts.h"
#include "cli/terminal/exit_code.h"
#include "host/loading.h"
#include "model/one_sequence.h"
#include "spec/lookup/suffix_automaton.h"

namespace ibid::bench {
namespace {

struct Settings {
  std::string model = "default", prompts = "bench/prompts/speculation.txt";
  int threads = 0;
  int32_t n_tokens = 128, window = 4;
};

struct FixedProposer {  // first ones, of all places and of those without a look-up's
  int64_t n = 0, n_right = 0, n_alone = 0, n_alone_right = 0;
  void add(TokenId draft, TokenId target, bool is_alone) {
    const bool is_right = draft == target;
    ++n, n_right += is_right, n_alone += is_alone, n_alone_right += is_alone && is_right;
  }
  void add(const FixedProposer& o) {
    n += o.n, n_right += o.n_right, n_alone += o.n_alone, n_alone_right += o.n_alone_right;
  }
  std::string text() const {
    const auto part = [](int64_t of, int64_t all) { return static_cast<double>(of) / std::max<double>(1, all); };
    char out[96];
    std::snprintf(out, sizeof out, "%ld, %.3f | %ld, %.3f", static_cast<long>(n), part(n_right, n),
                  static_cast<long>(n_alone), part(n_alone_right, n_alone));
    return out;
  }
};

struct Counts {
  int64_t n_tokens = 0, n_steps = 0;
  FixedProposer window, pool;
  void add(const Counts& o) {
    n_tokens += o.n_tokens, n_steps += o.n_steps;
    window.add(o.window), pool.add(o.pool);
  }
};

TokenId most_likely(const TensorView& rows, int64_t row) {
  const float* x = rows.row_as<const float>(row);
  return TokenId{static_cast<int32_t>(std::max_element(x, x + rows.dim[1]) - x)};
}

class Answering {
 public:
  Answering(host::Loaded& loaded, const Settings& settings, std::span<const TokenId> ends)
      : loaded_(loaded), settings_(settings), ends_(ends) {}

  Counts answer(const std::vector<TokenId>& prompt) {
    Counts out;
    const auto W = static_cast<size_t>(settings_.window);
    const int64_t capacity = std::ssize(prompt) + settings_.n_tokens + 2 * settings_.window + 2;
    OneSequence sequence(*loaded_.model, *loaded_.stream, {.kv_dtype = loaded_.kv_dtype, .capacity = capacity});
    SuffixAutomaton lookup(static_cast<int32_t>(capacity));
    for (const TokenId t : prompt) lookup.add(t);
    sequence.append(std::span(prompt).first(prompt.size() - 1), {});
    TokenId last = prompt.back();
    std::map<TokenId, TokenId> pool;  // how a token went on when it was last computed
    std::vector<TokenId> window, model_tokens(W + 1);
    while (out.n_tokens < settings_.n_tokens) {
      std::vector<TokenId> chain = chain_of(pool, last, W);
      const TokenId of_pool = chain.empty() ? TokenId::kNone : chain.front();
      const TokenId of_window = window.empty() ? TokenId::kNone : window.front();
      if (chain.empty()) chain = window;
      chain.resize(W, last);
      chain.insert(chain.begin(), last);
      const int64_t before = sequence.n_tokens();
      sequence.append(chain, [&](int64_t first, const TensorView& rows) {
        for (int64_t i = 0; i < rows.dim[0]; ++i)
          model_tokens.at(static_cast<size_t>(first - before + i)) = most_likely(rows, i);
      });
      const bool is_alone = lookup.match().len == 0;
      if (of_pool != TokenId::kNone) out.pool.add(of_pool, model_tokens[0], is_alone);
      if (of_window != TokenId::kNone) out.window.add(of_window, model_tokens[0], is_alone);
      size_t n_right = 0;
      while (n_right < W && chain[n_right + 1] == model_tokens[n_right]) ++n_right;
      for (size_t i = 0; i <= W; ++i) pool[chain[i]] = model_tokens[i];
      for (size_t i = 0; i <= n_right; ++i) pool[chain[i]] = model_tokens[i];  // the sequence's own stay
      ++out.n_steps;
      for (size_t i = 0; i <= n_right; ++i, ++out.n_tokens) {
        if (std::ranges::find(ends_, model_tokens[i]) != ends_.end()) return out;
        lookup.add(model_tokens[i]);
      }
      sequence.truncate(before + static_cast<int64_t>(n_right) + 1);
      last = model_tokens[n_right];
      window.assign(model_tokens.begin() + static_cast<std::ptrdiff_t>(n_right) + 1, model_tokens.end());
    }
    return out;
  }

 private:
  static std::vector<TokenId> chain_of(const std::map<TokenId, TokenId>& pool, TokenId last, size_t most) {
    std::vector<TokenId> out;
    for (auto it = pool.find(last); it != pool.end() && out.size() < most; it = pool.find(out.back()))
      out.push_back(it->second);
    return out;
  }
  host::Loaded& loaded_;
  const Settings& settings_;
  std::span<const TokenId> ends_;
};

int run(const Settings& settings) {
  host::ModelArgs args;
  args.model = settings.model;
  args.threads = settings.threads;
  args.context_len = 2048;
  auto loaded = host::load(args, {.step_tokens = 256});
  if (!loaded) return cli::fail(loaded.error());
  auto chat = host::load_template(*loaded->file, *loaded->tokenizer);
  if (!chat) return cli::fail(chat.error());
  const std::vector<TokenId> ends = loaded->engine_options({}).end_of_generation;
  Answering answering(*loaded, settings, ends);
  std::map<std::string, Counts> kinds;
  for (const Prompt& prompt : read_prompts(settings.prompts)) {
    const Counts counts = answering.answer(prompt_of(*chat, *loaded->tokenizer, prompt.text));
    kinds[prompt.kind].add(counts), kinds["of all"].add(counts);
  }
  std::printf(
      "| text | E | window: drafts, right | without a look-up's | pool: drafts, right | without a look-up's |\n");
  std::printf("|---|--:|--:|--:|--:|--:|\n");
  for (const auto& [kind, c] : kinds) {
    std::printf("| %s | %.3f | %s | %s |\n", kind.c_str(),
                static_cast<double>(c.n_tokens) / static_cast<double>(std::max<int64_t>(1, c.n_steps)),
                c.window.text().c_str(), c.pool.text().c_str());
  }
  return 0;
}

}  // namespace
}  // namespace ibid::bench

int main(int argc, char** argv) {
  ibid::bench::Settings s;
  CLI::App app("What look-ahead decoding would bring, by kind of text.");
  app.option_defaults()->always_capture_default();
  app.add_option("--model", s.model, "GGUF file, folder or name");
  app.add_option("--threads", s.threads, "of the model")->check(CLI::Range(1, 1024));
  app.add_option("--tokens", s.n_tokens, "of each answer")->check(CLI::PositiveNumber);
  app.add_option("--window", s.window, "drafts of a step")->check(CLI::Range(1, 32));
  app.add_option("prompts", s.prompts, "file of prompts")->check(CLI::ExistingFile);
  CLI11_PARSE(app, argc, argv);
  return ibid::bench::run(s);
}
