#include "sim/replay.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <queue>
#include <unordered_map>

#include "base/check.h"
#include "engine/engine.h"
#include "idle_model.h"

namespace ibid::sim {
namespace {

using testing::IdleModel;

// Sums of slots times seconds.
struct Integral {
  double filled = 0, reserved = 0, unusable = 0;
  Waste waste() const {
    const double all = reserved + unusable;
    if (all == 0) return {};
    return {.internal = (reserved - filled) / all, .external = unusable / all, .filled = filled / all};
  }
};

}  // namespace

Replayed replay(const Workload& workload, const ReplayOptions& options) {
  constexpr double kStep = 10e-3, kToken = 50e-6;  // seconds of a step, and of each of its tokens
  // So many tokens that different parts do not begin alike by chance, where that matters.
  const int32_t vocab_size = options.one_after_the_other ? 1 << 20 : IdleModel::kVocabSize;
  ThreadTeam team(1);
  Stream stream(team);
  ManualClock clock;
  auto model = std::make_unique<IdleModel>(options.context_len, clock, vocab_size);
  EngineOptions o;
  o.block_len = options.block_len;
  o.step_tokens = 2048;
  o.max_sequences = options.one_after_the_other ? 1 : options.max_sequences;
  o.max_waiting = 1 << 20;
  o.policy = PolicyKind::kFirstCome;
  o.kv_bytes = options.n_blocks * KvStore::block_bytes(model->facts(), o.kv_dtype, o.block_len);
  auto engine = Engine::create(std::move(model), nullptr, stream, o, clock).value();

  Replayed out;
  const size_t n = workload.arrivals.size();
  out.cached.resize(n);
  out.begun.resize(n);
  out.ended.resize(n);
  std::vector<Output> outputs;
  std::unordered_map<uint64_t, int32_t> len;  // tokens of those that run
  Integral all, pressed;
  double places = 0, idle = 0;
  for (size_t next = 0, n_ended = 0; n_ended < n;) {
    const bool is_idle = n_ended == next;
    if (is_idle && !options.one_after_the_other && clock.now() < workload.arrivals[next].at)
      clock.advance(workload.arrivals[next].at - clock.now());
    while (next < n && (options.one_after_the_other ? n_ended == next : workload.arrivals[next].at <= clock.now())) {
      Request r;
      r.id = RequestId{next + 1};
      r.prompt = prompt_of(workload, next, vocab_size);
      r.max_tokens = options.one_after_the_other ? 0 : workload.arrivals[next].answer_len;
      r.sampling.temperature = 0;
      CHECK(engine->submit(std::move(r)).ok());
      ++next;
    }
    outputs.clear();
    engine->step(outputs);
    ++out.n_steps;
    const EngineStats s = engine->stats();
    const double seconds = kStep + kToken * (s.step_prefill_tokens + s.step_decode_tokens);
    int32_t n_step_tokens = 0;
    for (const StepShare& share : engine->last_step()) {
      n_step_tokens += share.n_tokens;
      auto [it, is_new] = len.try_emplace(raw(share.request), 0);
      if (is_new) out.begun[raw(share.request) - 1] = clock.now();
    }
    const double held = static_cast<double>(s.blocks_in_use) * o.block_len;
    const double filled = held - static_cast<double>(s.slots_unfilled);
    all.filled += filled * seconds;
    all.reserved += held * seconds;
    // A request that waits although a step had room for it waits for blocks.
    if (s.n_waiting > 0 && s.n_running < o.max_sequences && n_step_tokens < o.step_tokens) {
      pressed.filled += filled * seconds;
      pressed.reserved += held * seconds;
      places += o.max_sequences * seconds;
      idle += (o.max_sequences - s.n_running) * seconds;
    }
    clock.advance(seconds);
    for (const Output& output : outputs) {
      if (!output.finished) continue;
      const size_t i = raw(output.request) - 1;
      out.cached[i] = output.usage.cached_tokens;
      out.ended[i] = clock.now();
      len.erase(raw(output.request));
      ++n_ended;
    }
  }
  out.prompt_tokens = engine->stats().prompt_tokens;
  out.cached_tokens = engine->stats().cached_tokens;
  out.unfilled = all.reserved == 0 ? 0 : 1 - all.filled / all.reserved;
  out.pressed = pressed.waste();
  out.idle_places = places == 0 ? 0 : idle / places;
  return out;
}

Waste contiguous(const Workload& workload, const Replayed& replayed, int64_t n_slots, int32_t context_len,
                 Reserve reserve) {
  struct Held {
    int64_t at, len, filled;
  };
  std::map<int64_t, int64_t> free = {{0, n_slots}};  // begin -> length
  std::multimap<double, Held> held;                  // by the time of its end
  std::deque<size_t> queue;
  Integral sum;
  const auto len_of = [&](size_t i) {
    const Arrival& a = workload.arrivals[i];
    if (reserve == Reserve::kContext) return static_cast<int64_t>(context_len);
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint32_t>(a.prompt_len + a.answer_len)));
  };
  const auto give_back = [&](const Held& h) {
    auto it = free.emplace(h.at, h.len).first;
    if (const auto after = std::next(it); after != free.end() && it->first + it->second == after->first)
      it->second += after->second, free.erase(after);
    if (it == free.begin()) return;
    const auto before = std::prev(it);
    if (before->first + before->second == it->first) before->second += it->second, free.erase(it);
  };
  double now = 0;
  for (size_t next = 0; next < workload.arrivals.size() || !held.empty();) {
    // Those that fit begin; the first that does not makes all after it wait.
    while (!queue.empty()) {
      const size_t i = queue.front();
      const auto fits = std::ranges::find_if(free, [&](const auto& run) { return run.second >= len_of(i); });
      if (fits == free.end()) break;
      const Held h = {fits->first, len_of(i), workload.arrivals[i].prompt_len + workload.arrivals[i].answer_len};
      const int64_t rest = fits->second - h.len;
      free.erase(fits);
      if (rest > 0) free.emplace(h.at + h.len, rest);
      held.emplace(now + replayed.ended[i] - replayed.begun[i], h);
      queue.pop_front();
    }
    double until = held.empty() ? workload.arrivals[next].at : held.begin()->first;
    if (next < workload.arrivals.size()) until = std::min(until, workload.arrivals[next].at);
    until = std::max(until, now);
    if (!queue.empty()) {
      int64_t reserved = 0, filled = 0;
      for (const auto& [end, h] : held) reserved += h.len, filled += h.filled;
      sum.reserved += static_cast<double>(reserved) * (until - now);
      sum.filled += static_cast<double>(filled) * (until - now);
      if (n_slots - reserved >= len_of(queue.front()))
        sum.unusable += static_cast<double>(n_slots - reserved) * (until - now);
    }
    now = until;
    while (!held.empty() && held.begin()->first <= now) give_back(held.begin()->second), held.erase(held.begin());
    while (next < workload.arrivals.size() && workload.arrivals[next].at <= now) queue.push_back(next++);
  }
  return sum.waste();
}

double idle_in_static_batches(const Workload& workload, int32_t n) {
  double idle = 0, places = 0;
  for (size_t i = 0; i < workload.arrivals.size(); i += static_cast<size_t>(n)) {
    int32_t longest = 0, sum = 0;
    for (size_t k = i; k < std::min(workload.arrivals.size(), i + static_cast<size_t>(n)); ++k) {
      longest = std::max(longest, workload.arrivals[k].answer_len);
      sum += workload.arrivals[k].answer_len;
    }
    places += static_cast<double>(longest) * n;
    idle += static_cast<double>(longest) * n - sum;
  }
  return places == 0 ? 0 : idle / places;
}

}  // namespace ibid::sim
