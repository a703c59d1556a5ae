#include "cli/measure/draft_measures.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "cli/terminal/progress.h"
#include "engine/engine.h"
#include "host/host.h"
#include "host/proposers.h"
#include "spec/lookup/free_proposers.h"

namespace ibid::cli {
namespace {

constexpr int32_t kRowSamples = 7;  // steps of each number of rows

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::ranges::nth_element(v, v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2));
  return v[v.size() / 2];
}

// The first draft after the text, the first after that, and so on.
DraftChain chain_of(const Drafts& drafts) {
  DraftChain out;
  int32_t last = -1;
  for (int32_t i = 0; i < drafts.size(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (drafts.parents[at] != last) continue;
    out.tokens.push_back(drafts.tokens[at]);
    out.likely.push_back(drafts.likely[at]);
    last = i;
  }
  return out;
}

// Proposes nothing itself: records what others draft and how long that takes. One sequence at a time.
class DraftRecorder final : public Proposer, public ProposerExtras {
 public:
  explicit DraftRecorder(std::vector<std::unique_ptr<Proposer>> watched) {
    for (auto& p : watched) watched_.push_back({.proposer = std::move(p)});
  }
  // As if steps took for ever and rows nothing: all draft as much as they may, whatever that costs.
  void begin_step(const StepPrices&) override {
    for (Watched& w : watched_) w.proposer->begin_step({.step = 1e9});
  }
  ProposerExtras* extras() override { return this; }
  bool reads_hidden() const override {
    return std::ranges::any_of(watched_, [](const Watched& w) { return w.extras && w.extras->reads_hidden(); });
  }
  void saw(int64_t sequence, int32_t n_tokens, std::span<const float> hidden) override {
    each_extras([&](Watched& w) { timed(w, [&] { w.extras->saw(sequence, n_tokens, hidden); }); });
  }
  const HiddenStates* taps() const override {
    for (const Watched& w : watched_) {
      if (w.extras && w.extras->taps() != nullptr) return w.extras->taps();
    }
    return nullptr;
  }
  void read(const ReadTokens& tokens) override {
    each_extras([&](Watched& w) { timed(w, [&] { w.extras->read(tokens); }); });
  }
  void propose(const ProposalInput& input, Drafts&) override {
    for (Watched& w : watched_) {
      Drafts drafts;
      const Proposal own{input, &drafts};
      timed(w, [&] { w.proposer->propose_all({&own, 1}); });
      drafts.cut(input.max_drafts);
      keep(w, input.answer.size(), chain_of(drafts));
    }
  }
  bool keeps_answers() const override {
    return std::ranges::any_of(watched_, [](const Watched& w) { return w.extras && w.extras->keeps_answers(); });
  }
  void ended(const EndedSequence& sequence) override {
    each_extras([&](Watched& w) {
      if (w.extras->keeps_answers()) w.extras->ended(sequence);
    });
  }
  void forget(int64_t sequence) override {
    for (Watched& w : watched_) w.proposer->forget(sequence);
  }

  DraftedText take(std::vector<TokenId> answer) {
    DraftedText out{.answer = std::move(answer)};
    for (Watched& w : watched_) out.drafts.push_back(std::exchange(w.drafts, {})), w.seconds = 0;
    return out;
  }
  // Seconds of a drafted token.
  std::vector<double> costs() const {
    std::vector<double> out;
    for (const Watched& w : watched_) out.push_back(median(w.each));
    return out;
  }

 private:
  struct Watched {
    std::unique_ptr<Proposer> proposer;
    ProposerExtras* extras = proposer->extras();  // may be null
    std::vector<DraftChain> drafts;               // of this text
    std::vector<double> each;                     // seconds of a draft, of each step that had any
    double seconds = 0;                           // since the last drafts
  };
  template <typename Body>
  void each_extras(const Body& body) {
    for (Watched& w : watched_) {
      if (w.extras) body(w);
    }
  }
  template <typename Body>
  static void timed(Watched& w, const Body& body) {
    const double begin = steady_clock().now();
    body();
    w.seconds += steady_clock().now() - begin;
  }
  // After the first token a text was read too.
  static void keep(Watched& w, size_t n_answer, DraftChain draft) {
    const double seconds = std::exchange(w.seconds, 0);
    if (n_answer == 0) return;
    if (n_answer > 1 && !draft.tokens.empty()) w.each.push_back(seconds / static_cast<double>(draft.tokens.size()));
    w.drafts.resize(std::max(w.drafts.size(), n_answer));
    w.drafts[n_answer - 1] = std::move(draft);
  }
  std::vector<Watched> watched_;
};

// Proposes none to most_ drafts in turn, which are made up, and are verified whatever they cost.
class RowFiller final : public Proposer {
 public:
  RowFiller(int32_t most, int32_t vocab_size) : most_(most), vocab_size_(vocab_size) {}
  void propose(const ProposalInput& input, Drafts& drafts) override {
    const int32_t n = std::min(next_++ % (most_ + 1), input.max_drafts), last = raw(input.answer.back());
    for (int32_t i = 0; i < n; ++i) drafts.add(TokenId{(last + 1 + 7 * i) % vocab_size_}, i - 1);
  }

 private:
  int32_t most_, vocab_size_, next_ = 0;
};

class Measurer {
 public:
  Measurer(Engine& engine, const DraftRun& run) : engine_(engine), run_(run) {}

  // Until the answer ends, or there are enough samples.
  Result<std::vector<double>> rows(int32_t most, int32_t vocab_size) {
    engine_.speculate(std::make_unique<RowFiller>(most, vocab_size), most);
    std::vector<std::vector<double>> taken(static_cast<size_t>(most) + 1);
    const int32_t n_steps = (most + 1) * kRowSamples;
    // Where many of them are right by chance, the answer ends before and there are fewer.
    TRY(answer(run_.prompts.front(), 4 * n_steps, 0, true, [&](double seconds) {
      const auto n = static_cast<size_t>(engine_.stats().step_drafted);
      if (n < taken.size()) taken[n].push_back(seconds);
      return ++n_timed_ < n_steps;
    }));
    const double one = median(taken[0]);
    if (one <= 0) return exhausted("Too few tokens fit after the text to measure anything; use a larger --ctx.");
    std::vector<double> out = {1};
    for (size_t i = 1; i < taken.size() && !taken[i].empty(); ++i)
      out.push_back(std::max(out.back(), median(taken[i]) / one));  // a row more never takes less
    one_ = one;
    return out;
  }
  // Of one row, by rows().
  double one() const { return one_; }

  Result<std::vector<TokenId>> answer(const std::vector<TokenId>& prompt, int32_t n_tokens, uint64_t seed,
                                      bool ignores_end, const std::function<bool(double)>& stepped) {
    Request r;
    r.id = RequestId{++last_id_};
    const auto room = static_cast<size_t>(std::max(1, engine_.facts().context_len - n_tokens - 1));
    r.prompt.assign(prompt.end() - static_cast<std::ptrdiff_t>(std::min(prompt.size(), room)), prompt.end());
    r.max_tokens = std::min(n_tokens, engine_.facts().context_len - static_cast<int32_t>(r.prompt.size()));
    r.sampling.temperature = run_.temperature;
    r.sampling.seed = seed;
    r.sampling.ignore_eos = ignores_end;
    TRY(engine_.submit(std::move(r)));
    std::vector<TokenId> out;
    std::vector<Output> outputs;
    for (bool is_over = false; !is_over;) {
      outputs.clear();
      const bool is_decode = !out.empty();
      const double begin = steady_clock().now();
      if (!engine_.step(outputs)) return exhausted("The engine stopped: there was not enough memory.");
      const double seconds = steady_clock().now() - begin;
      for (const Output& o : outputs) {
        for (const TokenRecord& t : o.tokens) out.push_back(t.chosen.token);
        is_over |= o.finished;
        if (o.finished && o.reason == FinishReason::kError) return o.error();
      }
      if (is_decode && !is_over && !stepped(seconds)) engine_.cancel(RequestId{last_id_});
    }
    return out;
  }

 private:
  Engine& engine_;
  const DraftRun& run_;
  uint64_t last_id_ = 0;
  int32_t n_timed_ = 0;
  double one_ = 0;
};

}  // namespace

Result<DraftMeasures> measure_drafts(const host::Loaded& loaded, const host::StepLimits& limits,
                                     const std::string& name, const DraftRun& run) {
  EngineOptions options = loaded.engine_options(limits);
  options.prefix_cache = false;
  options.max_itl = 1e6;
  options.kv_bytes = loaded.kv_bytes_for(1, loaded.context_len, options.block_len);
  ASSIGN_OR_RETURN(auto engine, host::start_engine(loaded, options));
  DraftMeasures out{.names = {"ngram"}};
  Progress progress("drafting along");
  Measurer measurer(*engine, run);
  ASSIGN_OR_RETURN(out.rows, measurer.rows(limits.spec.max_drafts(), loaded.tokenizer->vocab_size()));

  std::vector<std::unique_ptr<Proposer>> watched;
  watched.push_back(free_proposers(engine->facts(), 1));
  ASSIGN_OR_RETURN(std::unique_ptr<Proposer> named, host::proposer_of(*engine, loaded, limits));
  if (named != nullptr) watched.push_back(std::move(named)), out.names.push_back(name);
  auto owned = std::make_unique<DraftRecorder>(std::move(watched));
  DraftRecorder& recorder = *owned;
  engine->speculate(std::move(owned), limits.spec.max_drafts());
  uint64_t seed = 0;
  for (const std::vector<TokenId>& prompt : run.prompts) {
    ASSIGN_OR_RETURN(auto answer, measurer.answer(prompt, run.n_tokens, ++seed, false, [](double) { return true; }));
    out.texts.push_back(recorder.take(std::move(answer)));
    progress.update(seed, run.prompts.size());
  }
  for (const double seconds : recorder.costs()) out.costs.push_back(seconds / measurer.one());
  return out;
}

}  // namespace ibid::cli
