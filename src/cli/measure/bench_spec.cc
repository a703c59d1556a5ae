#include "cli/measure/bench_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"

namespace ibid::cli {
namespace {

double middle_of(std::vector<double> v) {
  if (v.empty()) return 0;
  std::ranges::nth_element(v, v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2));
  return v[v.size() / 2];
}

double part(double of, double all) { return all > 0 ? of / all : 0; }

struct BenchAnswer {
  std::vector<TokenId> tokens;
  std::vector<std::pair<int32_t, double>> steps;  // after the first token: drafts verified, seconds
  EngineStats before, after;
  double seconds() const {
    double sum = 0;
    for (const auto& [n, seconds] : steps) sum += seconds;
    return sum;
  }
};

class SpecBench {
 public:
  SpecBench(Engine& engine, const SpecBenchRun& run) : engine_(engine), run_(run) {}

  Result<SpecBenchRow> both(const std::vector<TokenId>& prompt, uint64_t seed, const std::function<void()>& answered) {
    SpecBenchRow row{.n_answers = 1};
    std::vector<double> seconds, plain_seconds;
    for (int32_t turn = 0; turn < run_.repeats; ++turn) {
      BenchAnswer with, without;
      // Who goes first alternates, as what a machine does besides does.
      for (const bool is_plain : {turn % 2 == 0, turn % 2 != 0}) {
        ASSIGN_OR_RETURN((is_plain ? without : with), answer(prompt, seed, is_plain));
        answered();
      }
      CHECK(with.tokens == without.tokens, "drafts have changed an answer");
      seconds.push_back(with.seconds()), plain_seconds.push_back(without.seconds());
      for (const BenchAnswer* a : {&with, &without}) {
        for (const auto& [n, took] : a->steps) taken_[1 + n].push_back(took);
      }
      if (turn == 0) count(with, row);
    }
    row.seconds = middle_of(seconds), row.plain_seconds = middle_of(plain_seconds);
    return row;
  }
  SpecBenchResult result;

  void finish() {
    for (auto& [n_rows, taken] : taken_) result.step_seconds[n_rows] = middle_of(taken);
  }

 private:
  void count(const BenchAnswer& a, SpecBenchRow& row) {
    row.n_tokens = static_cast<int64_t>(a.tokens.size()) - 1;
    row.n_steps = static_cast<int64_t>(a.steps.size());
    row.n_drafted = a.after.drafted_tokens - a.before.drafted_tokens;
    row.n_accepted = a.after.accepted_tokens - a.before.accepted_tokens;
    for (size_t i = 0; i < result.accepted_at.size(); ++i) {
      result.accepted_at[i] += a.after.accepted_at[i] - a.before.accepted_at[i];
      for (const auto& [n, took] : a.steps) result.verified_at[i] += static_cast<size_t>(n) > i;
    }
  }

  Result<BenchAnswer> answer(const std::vector<TokenId>& prompt, uint64_t seed, bool is_plain) {
    Request r;
    r.id = RequestId{++last_id_};
    r.prompt = prompt;
    r.max_tokens = run_.n_tokens;
    r.sampling.temperature = run_.temperature;
    r.sampling.seed = seed;
    if (is_plain) r.speculation.max_drafts = 0;
    BenchAnswer out{.before = engine_.stats()};
    TRY(engine_.submit(std::move(r)));
    std::vector<Output> outputs;
    for (bool is_over = false; !is_over;) {
      outputs.clear();
      const bool is_decode = !out.tokens.empty();
      const double begin = steady_clock().now();
      if (!engine_.step(outputs)) return exhausted("The engine stopped before the answer was over.");
      if (is_decode) out.steps.emplace_back(engine_.stats().step_drafted, steady_clock().now() - begin);
      for (const Output& o : outputs) {
        for (const TokenRecord& t : o.tokens) out.tokens.push_back(t.chosen.token);
        is_over |= o.finished;
        if (o.finished && o.reason == FinishReason::kError) return o.error();
      }
    }
    out.after = engine_.stats();
    return out;
  }

  Engine& engine_;
  const SpecBenchRun& run_;
  uint64_t last_id_ = 0;
  std::map<int32_t, std::vector<double>> taken_;  // by rows
};

struct SpecFigures {
  double tokens_a_step, drafted_a_step, accepted, tokens_s, plain_tokens_s, times;
};

SpecFigures figures(const SpecBenchRow& row) {
  const auto n_tokens = static_cast<double>(row.n_tokens), n_steps = static_cast<double>(row.n_steps);
  const auto n_drafted = static_cast<double>(row.n_drafted);
  return {.tokens_a_step = part(n_tokens, n_steps),
          .drafted_a_step = part(n_drafted, n_steps),
          .accepted = part(static_cast<double>(row.n_accepted), n_drafted),
          .tokens_s = part(n_tokens, row.seconds),
          .plain_tokens_s = part(n_tokens, row.plain_seconds),
          .times = part(row.plain_seconds, row.seconds)};
}

double one_row(const SpecBenchResult& result) {
  const auto it = result.step_seconds.find(1);
  return it == result.step_seconds.end() ? 0 : it->second;
}

std::string json_text(const SpecBenchResult& result) {
  std::string out = "{\n  \"texts\": [\n";
  for (size_t i = 0; i < result.rows.size(); ++i) {
    const SpecBenchRow& row = result.rows[i];
    const SpecFigures f = figures(row);
    out += fmt::format(
        "    {{\"text\": \"{}\", \"answers\": {}, \"tokens\": {}, \"steps\": {}, \"drafted\": {}, \"accepted\": {}, "
        "\"tokens_per_step\": {:.4f}, \"avg_ts\": {:.4f}, \"plain_avg_ts\": {:.4f}}}{}\n",
        row.kind, row.n_answers, row.n_tokens, row.n_steps, row.n_drafted, row.n_accepted, f.tokens_a_step, f.tokens_s,
        f.plain_tokens_s, i + 1 < result.rows.size() ? "," : "");
  }
  out += "  ],\n  \"places\": [";
  for (size_t i = 0; i < result.verified_at.size() && result.verified_at[i] > 0; ++i) {
    out += fmt::format("{}{{\"drafted\": {}, \"accepted\": {}}}", i > 0 ? ", " : "", result.verified_at[i],
                       result.accepted_at[i]);
  }
  out += "],\n  \"rows\": [";
  bool is_first = true;
  for (const auto& [n, seconds] : result.step_seconds) {
    out += fmt::format("{}{{\"rows\": {}, \"avg_ns\": {:.0f}}}", std::exchange(is_first, false) ? "" : ", ", n,
                       1e9 * seconds);
  }
  return out + "]\n}\n";
}

}  // namespace

void SpecBenchRow::add(const SpecBenchRow& other) {
  n_answers += other.n_answers, n_tokens += other.n_tokens, n_steps += other.n_steps;
  n_drafted += other.n_drafted, n_accepted += other.n_accepted;
  seconds += other.seconds, plain_seconds += other.plain_seconds;
}

Result<SpecBenchResult> bench_spec(Engine& engine,
                                   const std::vector<std::pair<std::string, std::vector<TokenId>>>& prompts,
                                   const SpecBenchRun& run, const std::function<void()>& answered) {
  SpecBench bench(engine, run);
  std::vector<SpecBenchRow>& rows = bench.result.rows;
  SpecBenchRow all{.kind = "all"};
  uint64_t seed = 0;
  for (const auto& [kind, prompt] : prompts) {
    ASSIGN_OR_RETURN(const SpecBenchRow row, bench.both(prompt, ++seed, answered));
    auto of_kind = std::ranges::find(rows, kind, &SpecBenchRow::kind);
    if (of_kind == rows.end()) of_kind = rows.insert(of_kind, {.kind = kind});
    of_kind->add(row);
    all.add(row);
  }
  rows.push_back(all);
  bench.finish();
  return std::move(bench.result);
}

std::string spec_bench_text(const SpecBenchResult& result, const std::string& format) {
  if (format == "json") return json_text(result);
  const bool csv = format == "csv";
  std::string out = csv ? "text,answers,tokens_per_step,drafted_per_step,accepted,avg_ts,plain_avg_ts,times\n"
                        : "| text | answers | tokens a step | drafted a step | accepted of them | tokens/s | without | "
                          "times |\n|---|--:|--:|--:|--:|--:|--:|--:|\n";
  const char* form = csv ? "{},{},{:.3f},{:.3f},{:.3f},{:.2f},{:.2f},{:.3f}\n"
                         : "| {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |\n";
  for (const SpecBenchRow& row : result.rows) {
    const SpecFigures f = figures(row);
    out += fmt::format(fmt::runtime(form), row.kind, row.n_answers, f.tokens_a_step, f.drafted_a_step, f.accepted,
                       f.tokens_s, f.plain_tokens_s, f.times);
  }
  if (csv) return out;
  out += "\naccepted by place:";
  for (size_t i = 0; i < result.verified_at.size() && result.verified_at[i] > 0; ++i) {
    out += fmt::format("{} {:.2f} of {}", i > 0 ? "," : "",
                       part(static_cast<double>(result.accepted_at[i]), static_cast<double>(result.verified_at[i])),
                       result.verified_at[i]);
  }
  out += fmt::format("\na step of one row takes {:.2f} ms; of", 1e3 * one_row(result));
  for (const auto& [n, seconds] : result.step_seconds) {
    if (n > 1) out += fmt::format(" {}: {:.2f}", n, part(seconds, one_row(result)));
  }
  return out + " of that\n";
}

}  // namespace ibid::cli
