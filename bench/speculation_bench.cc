// The gain of drafts, by kind of text: the same prompts with speculation and without, in turn, on one model.
//   speculation_bench [--model MODEL] [--threads N] [--tokens N] [--temp T] [--k K] [--draft MODEL] [--heads FILE]
//   [--eagle FILE|own] [--store FILE] [--own-answers BYTES] [--window SINK,WINDOW [--fixed] [--beside]] [--oracle]
//   [--siblings]
//   [--replay P] [--repeats N] [--context N --after FILE] [--every N] [--by-cpu] [PROMPTS]
// Tokens must be the same. E: tokens a step. steps: the time of the counted steps by v(r), the median time of a step of
// r rows over one of 1 row, both of this run; clock: the time of the plain answer over the other's, both after their
// first token. The median of `repeats` runs, whose order alternates. --oracle proposes the plain answer. --siblings
// reports instead how often a second branch of a tree would be accepted: the token after the first occurrence of the
// sequence's end, if it differs from the token after the last. --replay reports the gain of the look-up and the stores
// on the plain answers, had all drafts of probability P or more been verified: it uses no clock. Answers are kept for
// later ones, as --own-answers does. --window lets the model draft over a part of the sequence, without the look-up, or
// --beside it; --fixed: --k drafts in every step, at any cost. --context prepends as much of a text to each prompt as
// makes the longest of them and its answer that many tokens. --every takes only each N-th prompt. --by-cpu measures all
// times in the process's CPU time, for busy machines (one thread). c: the time of proposing relative to a step of one
// row, for each pass of the model over its view.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <string>

#include "base/check.h"
#include "bench/speculation_prompts.h"
#include "cli/terminal/exit_code.h"
#include "host/host.h"
#include "host/proposers.h"
#include "spec/experimental/store_proposer.h"
#include "spec/lookup/free_proposers.h"
#include "spec/lookup/suffix_automaton.h"
#include "spec/model/window_proposer.h"

namespace ibid::bench {
namespace {

// Seconds that the process has computed for: of one thread, steps and passes take the same on a machine that others
// use too. Memory that they fill is another matter.
class CpuClock final : public Clock {
 public:
  double now() const override { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }
};

class Oracle final : public Proposer {
 public:
  explicit Oracle(const std::vector<TokenId>& answer) : answer_(answer) {}
  void propose(const ProposalInput& input, Drafts& drafts) override {
    for (size_t i = input.answer.size(); i < answer_.size() && drafts.size() < input.max_drafts; ++i)
      drafts.add(answer_[i], drafts.size() - 1);
  }

 private:
  const std::vector<TokenId>& answer_;
};

struct Answer {
  std::vector<TokenId> tokens;
  struct Step {
    int32_t rows;
    double seconds, forward, draw;
  };
  std::vector<Step> steps;  // of those after the first token
  int32_t n_drafted = 0, n_accepted = 0;
  double seconds = 0;    // of these
  double proposing = 0;  // of these, before their forward passes
  int64_t n_passes = 0;  // of the model over a view
};

struct Settings {
  std::string model = "default", draft, heads, eagle, store, prompts = "bench/prompts/speculation.txt";
  int threads = 0;
  int32_t n_tokens = 128, k = 8, repeats = 3;
  float temperature = 0;
  int64_t own_answers_bytes = 0;
  std::optional<WindowOptions> window;
  int32_t context_len = 0, every = 1;  // 0: prompts stand alone
  std::string following;
  bool by_cpu = false, beside = false;
  bool oracle = false;
  bool siblings = false;
  float replay = 0;  // 0: not so
};

// Counts of all tokens of answers: with a draft; that draft accepted; with a second one beside it; that one accepted.
struct Siblings {
  int64_t n_tokens = 0, n_drafted = 0, n_right = 0, n_with_other = 0, n_other_right = 0;
  void add(std::span<const TokenId> prompt, std::span<const TokenId> answer) {
    SuffixAutomaton automaton(static_cast<int32_t>(prompt.size() + answer.size()));
    for (const TokenId t : prompt) automaton.add(t);
    for (const TokenId t : answer) {
      const SuffixAutomaton::Match& match = automaton.match();
      const auto at = [&](int32_t i) { return automaton.tokens()[static_cast<size_t>(i)]; };
      ++n_tokens;
      if (match.len > 0) {
        const bool has_other = at(match.first_end) != at(match.last_end);
        ++n_drafted, n_right += at(match.last_end) == t;
        n_with_other += has_other, n_other_right += has_other && at(match.first_end) == t;
      }
      automaton.add(t);
    }
  }
};

// Counts of answers, step by step.
struct Replayed {
  int64_t n_tokens = 0, n_steps = 0, n_drafted = 0, n_right = 0;
  void add(Proposer& proposer, int64_t sequence, std::span<const TokenId> prompt, std::span<const TokenId> answer,
           const Settings& settings) {
    Drafts drafts;
    for (size_t at = 1; at < answer.size(); ++n_steps) {
      drafts.clear();
      proposer.begin_step({});
      proposer.propose({.sequence = sequence,
                        .prompt = prompt,
                        .answer = answer.first(at),
                        .max_drafts = settings.k,
                        .temperature = settings.temperature},
                       drafts);
      size_t n = 0;
      while (n < drafts.tokens.size() && drafts.likely[n] >= settings.replay) ++n;
      size_t n_same = 0;
      while (n_same < n && at + n_same < answer.size() && drafts.tokens[n_same] == answer[at + n_same]) ++n_same;
      n_drafted += static_cast<int64_t>(n), n_right += static_cast<int64_t>(n_same);
      at += n_same + 1;
    }
    n_tokens += static_cast<int64_t>(answer.size()) - 1;
    proposer.forget(sequence);
    ProposerExtras* extras = proposer.extras();
    if (extras != nullptr && extras->keeps_answers()) extras->ended({.prompt = prompt, .answer = answer, .scope = {}});
  }
};

// So much of the file as leaves room for the longest prompt and its answer.
std::string text_before(const Settings& settings, const ChatTemplate& chat, const Tokenizer& tokenizer,
                        const std::vector<Prompt>& prompts) {
  if (settings.context_len == 0) return "";
  std::ifstream in(settings.following);
  CHECK(in.is_open(), "the text before the prompts cannot be read");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  size_t longest = 0;
  for (const Prompt& p : prompts) longest = std::max(longest, prompt_of(chat, tokenizer, p.text).size());
  const auto room = static_cast<size_t>(settings.context_len - settings.n_tokens) - longest;
  // Tokens are never longer than their text.
  for (size_t n = prompt_of(chat, tokenizer, text).size(); n > room; n = prompt_of(chat, tokenizer, text).size())
    text.resize(std::min(text.size() * room / n, text.size() - std::min<size_t>(text.size(), 32)));
  return text + "\n\n";
}

Answer answer(Engine& engine, std::vector<TokenId> prompt, const Settings& settings, uint64_t seed, const Clock& clock,
              const WindowProposer* window = nullptr, bool is_plain = false) {
  static uint64_t next_id = 1;
  Request r;
  r.id = RequestId{next_id++};
  r.prompt = std::move(prompt);
  r.max_tokens = settings.n_tokens;
  r.sampling.temperature = settings.temperature;
  r.sampling.seed = seed;
  if (is_plain) r.speculation.max_drafts = 0;
  const EngineStats before = engine.stats();
  CHECK(engine.submit(std::move(r)).ok());
  Answer out;
  std::vector<Output> outputs;
  bool has_ended = false;
  while (!has_ended) {
    const bool is_decode = !out.tokens.empty();
    const int64_t n_passes = window != nullptr ? window->n_passes() : 0;
    const double begin = clock.now();
    CHECK(engine.step(outputs));
    const double took = clock.now() - begin;
    if (is_decode) {
      const EngineStats stats = engine.stats();
      out.steps.push_back({1 + stats.step_drafted, took, stats.step_forward, stats.step_sample});
      out.seconds += took;
      out.proposing += stats.step_plan;  // it has a step of the scheduler too, some microseconds
      if (window != nullptr) out.n_passes += window->n_passes() - n_passes;
    }
    for (const Output& o : outputs) {
      for (const TokenRecord& t : o.tokens) out.tokens.push_back(t.chosen.token);
      has_ended |= o.finished;
      CHECK(o.reason != FinishReason::kError, o.error().message.c_str());
    }
    outputs.clear();
  }
  out.n_drafted = static_cast<int32_t>(engine.stats().drafted_tokens - before.drafted_tokens);
  out.n_accepted = static_cast<int32_t>(engine.stats().accepted_tokens - before.accepted_tokens);
  return out;
}

double median(std::vector<double> v) {
  CHECK(!v.empty());
  std::ranges::nth_element(v, v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2));
  return v[v.size() / 2];
}

struct Row {  // of one prompt, or a kind's sum
  std::string kind;
  int64_t n_plain_steps = 0, n_steps = 0, n_drafted = 0, n_accepted = 0;
  std::map<int32_t, int64_t> rows;  // steps of so many rows
  double plain_seconds = 0, seconds = 0;
  void add(const Row& o) {
    n_plain_steps += o.n_plain_steps, n_steps += o.n_steps, n_drafted += o.n_drafted, n_accepted += o.n_accepted;
    for (const auto& [rows_of, n] : o.rows) rows[rows_of] += n;
    plain_seconds += o.plain_seconds, seconds += o.seconds;
  }
  double by_steps(const std::map<int32_t, double>& v) const {
    double cost = 0;
    for (const auto& [n_rows, n] : rows) cost += static_cast<double>(n) * v.at(n_rows);
    return static_cast<double>(n_plain_steps) / cost;
  }
};

int run(const Settings& settings) {
  host::ModelArgs args;
  args.model = settings.model;
  args.threads = settings.threads;
  args.context_len = std::max(2048, settings.context_len);
  const host::StepLimits limits = {.spec = {.finds_own = false,
                                            .draft_model = settings.draft,
                                            .heads = settings.heads,
                                            .eagle = settings.eagle,
                                            .store = settings.store,
                                            .own_answers_bytes = settings.own_answers_bytes,
                                            .k = settings.k}};
  auto loaded = host::load(args, limits);
  if (!loaded) return cli::fail(loaded.error());
  auto chat = host::load_template(*loaded->file, *loaded->tokenizer);
  if (!chat) return cli::fail(chat.error());
  EngineOptions with = loaded->engine_options(limits);
  with.prefix_cache = false;
  with.kv_bytes = loaded->kv_bytes_for(1, loaded->context_len, with.block_len);
  if (settings.context_len > 0) {  // what all prompts stand after is read once
    with.prefix_cache = true;
    with.kv_bytes = loaded->kv_bytes_for(3, loaded->context_len, with.block_len);
  }
  EngineOptions without = with;
  without.max_drafts = 0;
  const CpuClock cpu_clock;
  const Clock& clock = settings.by_cpu ? cpu_clock : steady_clock();
  auto drafting = host::start_engine(*loaded, with, {.clock = clock}).value();
  if (settings.context_len > 0) drafting->measure_steps(clock);  // as a server does
  std::unique_ptr<Engine> own_plain;
  // After a long text both answer in one engine, which reads it once.
  if (settings.context_len == 0) own_plain = host::start_engine(*loaded, without, {.clock = clock}).value();
  Engine* plain = own_plain ? own_plain.get() : drafting.get();

  if (Status used = host::use_proposers(*drafting, *loaded, limits); !used) return cli::fail(used.error());

  const WindowProposer* window = nullptr;
  if (settings.window) {
    WindowOptions options = *settings.window;
    options.end_of_generation = with.end_of_generation;
    auto made = WindowProposer::create(drafting->seat(), options, clock);
    if (!made) return cli::fail(made.error());
    window = made->get();
    (*made)->measure();
    std::unique_ptr<Proposer> last = *std::move(made);
    drafting->speculate(settings.beside ? free_proposers(drafting->facts(), 1, std::move(last)) : std::move(last),
                        settings.k);
  }

  std::vector<Row> all;
  double proposing = 0;
  int64_t n_passes = 0, n_read = 0, n_prompts = 0;
  std::map<int32_t, std::vector<double>> seconds_of, forward_of, draw_of;
  std::vector<double> plain_steps;
  uint64_t seed = 0;
  std::map<std::string, Siblings> siblings;
  std::map<std::string, Replayed> by_lookup, by_all;
  const auto lookup = free_proposers(plain->facts(), 1);
  const auto everything = free_proposers(
      plain->facts(), 1, nullptr,
      std::make_unique<StoreProposer>(
          loaded->store,
          settings.own_answers_bytes > 0 ? std::make_unique<OwnAnswers>(settings.own_answers_bytes) : nullptr,
          StoreProposerOptions{.end_of_generation = with.end_of_generation}));
  std::vector<Prompt> prompts;
  for (const Prompt& prompt : read_prompts(settings.prompts)) {
    if (n_prompts++ % settings.every == 0) prompts.push_back(prompt);
  }
  const std::string before = text_before(settings, *chat, *loaded->tokenizer, prompts);
  for (const Prompt& prompt : prompts) {
    const std::vector<TokenId> ids = prompt_of(*chat, *loaded->tokenizer, before + prompt.text);
    n_read += static_cast<int64_t>(ids.size());
    if (settings.siblings) {
      const Answer a = answer(*plain, ids, settings, ++seed, clock);
      for (const std::string& kind : {prompt.kind, std::string("of all")}) siblings[kind].add(ids, a.tokens);
      continue;
    }
    if (settings.replay > 0) {
      const Answer a = answer(*plain, ids, settings, ++seed, clock);
      for (auto* replayed : {&by_lookup, &by_all}) {
        Proposer& proposer = replayed == &by_lookup ? *lookup : *everything;
        (*replayed)[prompt.kind].add(proposer, static_cast<int64_t>(seed), ids, a.tokens, settings);
      }
      continue;
    }
    Row row{.kind = prompt.kind};
    std::vector<double> plain_seconds, seconds;
    ++seed;
    for (int32_t turn = 0; turn < settings.repeats; ++turn) {
      Answer a, b;
      const auto go_plain = [&] { a = answer(*plain, ids, settings, seed, clock, nullptr, true); };
      const auto go_drafting = [&] {
        if (settings.oracle) drafting->speculate(std::make_unique<Oracle>(a.tokens), settings.k);
        b = answer(*drafting, ids, settings, seed, clock, window);
      };
      if (turn % 2 == 0 || settings.oracle)
        go_plain(), go_drafting();
      else
        go_drafting(), go_plain();
      CHECK(a.tokens == b.tokens, "drafts have changed an answer");
      for (const Answer::Step& step : a.steps) plain_steps.push_back(step.seconds);
      for (const Answer::Step& step : b.steps) {
        seconds_of[step.rows].push_back(step.seconds);
        forward_of[step.rows].push_back(step.forward), draw_of[step.rows].push_back(step.draw);
      }
      plain_seconds.push_back(a.seconds), seconds.push_back(b.seconds);
      proposing += b.proposing, n_passes += b.n_passes;
      if (turn > 0) continue;
      row.n_plain_steps = static_cast<int64_t>(a.steps.size()), row.n_steps = static_cast<int64_t>(b.steps.size());
      row.n_drafted = b.n_drafted, row.n_accepted = b.n_accepted;
      for (const Answer::Step& step : b.steps) ++row.rows[step.rows];
    }
    row.plain_seconds = median(plain_seconds), row.seconds = median(seconds);
    all.push_back(std::move(row));
  }
  for (const auto& [kind, s] : siblings) {
    std::printf("%-10s tokens %ld, with a draft %ld, right %ld; another beside it %ld, right %ld\n", kind.c_str(),
                static_cast<long>(s.n_tokens), static_cast<long>(s.n_drafted), static_cast<long>(s.n_right),
                static_cast<long>(s.n_with_other), static_cast<long>(s.n_other_right));
  }
  for (const auto* all_kinds : {&by_lookup, &by_all}) {
    Replayed sum;
    const auto print = [&](const std::string& kind, const Replayed& r) {
      const auto steps = static_cast<double>(r.n_steps);
      std::printf("| %s, %s | %.3f | %.2f | %.2f |\n", kind.c_str(), all_kinds == &by_lookup ? "look-up" : "stores too",
                  static_cast<double>(r.n_tokens) / steps, static_cast<double>(r.n_drafted) / steps,
                  static_cast<double>(r.n_right) / static_cast<double>(std::max<int64_t>(1, r.n_drafted)));
    };
    for (const auto& [kind, r] : *all_kinds) {
      print(kind, r);
      sum.n_tokens += r.n_tokens, sum.n_steps += r.n_steps, sum.n_drafted += r.n_drafted, sum.n_right += r.n_right;
    }
    if (!all_kinds->empty()) print("all", sum);
  }
  if (settings.siblings || settings.replay > 0) return 0;
  // From the same engine and the same moments if possible: the load of a machine varies.
  const double one = seconds_of[1].size() >= 32 ? median(seconds_of[1]) : median(plain_steps);
  if (seconds_of[1].empty()) seconds_of.erase(1);
  std::map<int32_t, double> v;
  double last = 0;
  std::printf("%s, %d threads, T %g, k %d%s: a step of one row %.2f ms, v(rows)", loaded->description().c_str(),
              loaded->team->n_threads(), static_cast<double>(settings.temperature), settings.k,
              settings.oracle ? ", oracle" : "", 1e3 * one);
  for (const auto& [rows, took] : seconds_of) {
    // A count that is rare is measured badly; more rows never take less.
    v[rows] = last = took.size() < 8 ? last + 0.1 : std::max(last, median(took) / one);
    std::printf(" %d:%.2f", rows, v[rows]);
  }
  std::printf("\n%.0f tokens read before an answer, in the mean",
              static_cast<double>(n_read) / static_cast<double>(prompts.size()));
  if (n_passes > 0) {
    const double pass = proposing / static_cast<double>(n_passes);
    std::printf("; %ld passes over a view of %.2f ms: c %.2f", static_cast<long>(n_passes), 1e3 * pass, pass / one);
  }
  std::printf("\nforward pass, drawing, ms:");
  for (const auto& [rows, took] : forward_of)
    std::printf(" %d: %.2f, %.2f", rows, 1e3 * median(took), 1e3 * median(draw_of[rows]));
  std::printf(
      "\n\n| text | prompts | E | drafted a step | accepted of them | steps x v | clock | worst by steps | by clock "
      "|\n");
  std::printf("|---|--:|--:|--:|--:|--:|--:|--:|--:|\n");
  std::vector<std::string> kinds;
  for (const Row& row : all) {
    if (std::ranges::find(kinds, row.kind) == kinds.end()) kinds.push_back(row.kind);
  }
  kinds.push_back("all");
  for (const std::string& kind : kinds) {
    Row sum;
    int n = 0;
    double worst = 1e9, worst_by_clock = 1e9;
    for (const Row& row : all) {
      if (kind != "all" && row.kind != kind) continue;
      ++n, sum.add(row);
      if (row.n_steps == 0) continue;
      worst = std::min(worst, row.by_steps(v));
      worst_by_clock = std::min(worst_by_clock, row.plain_seconds / row.seconds);
    }
    const auto steps = static_cast<double>(sum.n_steps);
    std::printf("| %s | %d | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", kind.c_str(), n,
                static_cast<double>(sum.n_plain_steps) / steps, static_cast<double>(sum.n_drafted) / steps,
                sum.n_drafted > 0 ? static_cast<double>(sum.n_accepted) / static_cast<double>(sum.n_drafted) : 0.0,
                sum.by_steps(v), sum.plain_seconds / sum.seconds, worst, worst_by_clock);
  }
  return 0;
}

}  // namespace
}  // namespace ibid::bench

int main(int argc, char** argv) {
  ibid::bench::Settings s;
  CLI::App app("What drafts bring, by kind of text.");
  app.option_defaults()->always_capture_default();
  app.add_option("--model", s.model, "GGUF file, folder or name");
  app.add_option("--draft", s.draft, "a draft model");
  app.add_option("--heads", s.heads, "a file of draft heads");
  app.add_option("--eagle", s.eagle, "an EAGLE head, or own");
  app.add_option("--store", s.store, "a store of texts");
  app.add_option("--own-answers", s.own_answers_bytes, "bytes for answers before")
      ->check(CLI::Range(ibid::OwnAnswers::kLeastBytes, int64_t{1} << 40));
  app.add_option("--threads", s.threads, "of the model")->check(CLI::Range(1, 1024));
  app.add_option("--tokens", s.n_tokens, "of each answer")->check(CLI::PositiveNumber);
  app.add_option("--temp", s.temperature, "of each request")->check(CLI::Range(0.0, 10.0));
  app.add_option("--k", s.k, "most drafts of a step")->check(CLI::PositiveNumber);
  app.add_option("--repeats", s.repeats, "runs of each prompt")->check(CLI::PositiveNumber);
  std::vector<int32_t> window;
  app.add_option("--window", window, "SINK,WINDOW: the model drafts over these tokens of a text")
      ->delimiter(',')
      ->expected(2);
  bool is_fixed = false;
  app.add_flag("--fixed", is_fixed, "with --window: --k drafts in every step");
  app.add_flag("--beside", s.beside, "with --window: the look-up drafts too");
  app.add_option("--context", s.context_len, "tokens of the longest prompt and its answer");
  app.add_option("--after", s.following, "a text that prompts stand after")->check(CLI::ExistingFile);
  app.add_option("--every", s.every, "each N-th prompt alone")->check(CLI::PositiveNumber);
  app.add_flag("--by-cpu", s.by_cpu, "times of what the process computed");
  app.add_flag("--oracle", s.oracle, "propose the plain answer");
  app.add_option("--replay", s.replay, "count what drafts of at least this probability would bring");
  app.add_flag("--siblings", s.siblings, "count how often a second branch would be right");
  app.add_option("prompts", s.prompts, "file of prompts")->check(CLI::ExistingFile);
  CLI11_PARSE(app, argc, argv);
  if (!window.empty() || is_fixed) s.window.emplace();
  if (!window.empty()) s.window->n_sink = window[0], s.window->n_window = window[1];
  if (is_fixed) s.window->always = true;
  return ibid::bench::run(s);
}
