// TimedModel: a model on a virtual clock. Every step advances the clock by a linear cost of its contents; every row of
// logits draws the same token, or one that depends on its position, mostly at a temperature. It tests scheduling over
// time without taking time.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "engine/engine.h"

namespace ibid::testing {

// Seconds. As measured with the default model on two cores: a step, a prompt's token, a decode, a position that a
// prompt's token or a decode reads.
struct LinearCost {
  double step = 2.4e-3, prompt = 0.51e-3, decode = 0.8e-3, prompt_read = 0.34e-6, decode_read = 1.24e-6;
  double new_block = 0;  // the first write to a block
  double noise = 0;      // each step takes up to so much more or less, as a part of it
};

class TimedModel final : public ForwardPass {
 public:
  using Next = int32_t (*)(int32_t position);  // the token after a position; null: 1
  // `peak` is that token's logit; all others have 0.
  TimedModel(ManualClock& clock, const LinearCost& cost, int32_t context_len, Next next = nullptr, float peak = 1)
      : clock_(clock), cost_(cost), next_(next), peak_(peak) {
    facts_ = {.layers = {{.n_kv_heads = 1, .key_len = 8, .value_len = 8}},
              .vocab_size = next != nullptr ? 64 : 4,
              .context_len = context_len,
              .digest = "timed",
              .rope = "none"};
  }
  const ModelFacts& facts() const override { return facts_; }
  double seconds(int32_t n_tokens, int32_t n_before) const {
    if (n_tokens == 1) return cost_.decode + cost_.decode_read * n_before;
    return cost_.prompt * n_tokens + cost_.prompt_read * n_tokens * (n_before + n_tokens / 2.0);
  }
  void run(const ForwardBatch& b, std::span<const PagedKv>, const TensorView& logits, const HiddenStates&) override {
    double taken = cost_.step;
    for (int32_t s = 0; s < b.n_sequences; ++s) {
      const int32_t n = b.query_start[s + 1] - b.query_start[s];
      // A decode with its drafts has a row for each token.
      const auto row_of = [&](int32_t i) { return std::find(b.logit_rows, b.logit_rows + b.n_rows, i) - b.logit_rows; };
      const bool is_decode = row_of(b.query_start[s]) < b.n_rows;
      taken += is_decode ? n * seconds(1, b.kv_len[s] - n) : seconds(n, b.kv_len[s] - n);
    }
    for (int32_t t = 0; t < b.n_tokens && cost_.new_block > 0; ++t)
      taken += written_.insert(b.slots[t] / b.block_len).second ? cost_.new_block : 0;
    const double u = static_cast<double>(random_() >> 11) * 0x1p-52 - 1;
    clock_.advance(taken * (1 + cost_.noise * u));
    for (int32_t row = 0; row < b.n_rows; ++row) {
      float* out = logits.row_as<float>(row);
      std::fill(out, out + facts_.vocab_size, 0.0f);
      out[next_ != nullptr ? next_(b.positions[b.logit_rows[row]]) : 1] = peak_;
    }
  }

 private:
  ManualClock& clock_;
  LinearCost cost_;
  Next next_;
  float peak_;
  ModelFacts facts_;
  std::mt19937_64 random_{1};
  std::set<int32_t> written_;
};

// An engine over it, and its users' view: the time of each token of each request.
class TimedEngine {
 public:
  struct Seen {
    double asked = 0;
    std::vector<double> tokens;  // when each came
    bool refused = false, finished = false;
    std::string tenant;
    double ttft() const { return tokens.front() - asked; }
  };
  explicit TimedEngine(EngineOptions options = {}, const LinearCost& cost = {}, int32_t context_len = 8192,
                       TimedModel::Next next = nullptr, float peak = 1) {
    auto model = std::make_unique<TimedModel>(clock, cost, context_len, next, peak);
    if (options.kv_bytes == 0)
      options.kv_bytes = 16 * context_len / 16 * KvStore::block_bytes(model->facts(), options.kv_dtype, 16);
    engine = Engine::create(std::move(model), nullptr, stream_, options, clock).value();
  }
  Request request(int32_t n_prompt, int32_t n_answer) {
    Request r;
    r.id = RequestId{next_id_++};
    // No prompt begins like another.
    for (int32_t i = 0; i < n_prompt; ++i)
      r.prompt.push_back(TokenId{i < 32 ? static_cast<int32_t>(raw_id(r) >> (2 * i % 64) & 3) : 1});
    r.max_tokens = n_answer;
    r.sampling.temperature = 0;
    r.sampling.ignore_eos = true;
    return r;
  }
  RequestId submit(Request r) {
    const RequestId id = r.id;
    Seen& s = seen[id];
    s.asked = clock.now();
    s.tenant = r.tenant;
    s.refused = !engine->submit(std::move(r));
    return id;
  }
  RequestId submit(int32_t n_prompt, int32_t n_answer) { return submit(request(n_prompt, n_answer)); }
  // False where there was nothing to do.
  bool step() {
    out_.clear();
    const bool busy = engine->step(out_);
    for (const Output& o : out_) {
      Seen& s = seen[o.request];
      s.tokens.insert(s.tokens.end(), o.tokens.size(), clock.now());
      s.finished |= o.finished;
    }
    return busy;
  }
  void drain() {
    while (step()) {
    }
  }
  // Times between tokens of all requests, sorted; those that ended in [from, to).
  std::vector<double> gaps(double from = 0, double to = 1e9) const {
    std::vector<double> out;
    for (const auto& [id, s] : seen) {
      for (size_t i = 1; i < s.tokens.size(); ++i) {
        if (s.tokens[i] >= from && s.tokens[i] < to) out.push_back(s.tokens[i] - s.tokens[i - 1]);
      }
    }
    std::ranges::sort(out);
    return out;
  }
  static double quantile(const std::vector<double>& sorted, double q) {
    return sorted.at(std::min(sorted.size() - 1, static_cast<size_t>(q * static_cast<double>(sorted.size()))));
  }

  ManualClock clock;
  std::unique_ptr<Engine> engine;
  std::map<RequestId, Seen> seen;

 private:
  static uint64_t raw_id(const Request& r) { return static_cast<uint64_t>(r.id) * 0x9e3779b97f4a7c15u; }
  ThreadTeam team_{1};
  Stream stream_{team_};
  uint64_t next_id_ = 1;
  std::vector<Output> out_;
};

}  // namespace ibid::testing
