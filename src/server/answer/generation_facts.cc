// What is known of a generation besides its text: its counts, its times, how it ended.
#include <algorithm>
#include <utility>

#include "base/json_writer.h"
#include "base/sha256.h"
#include "server/answer/generation.h"

namespace ibid {

int32_t Generation::sum_of(int32_t Choice::*count) const {
  int32_t n = 0;
  for (const Choice& choice : choices_) n += choice.*count;
  return n;
}

int32_t Generation::completion_tokens() const { return sum_of(&Choice::n_tokens) + n_dropped_tokens_; }

int32_t Generation::resumed_tokens() const { return sum_of(&Choice::n_resumed); }

int32_t Generation::reasoning_tokens() const { return sum_of(&Choice::n_reasoning); }

int32_t Generation::prompt_tokens() const {
  int32_t n = 0;
  for (const int32_t len : info_.prompt_lens) n += len;
  return n;
}

int32_t Generation::cached_tokens() const {
  int32_t n = 0;
  for (const PromptFacts& prompt : prompts_) n += prompt.usage.cached_tokens;
  return n;
}

int32_t Generation::drafted_tokens() const { return sum_of(&Choice::n_drafted); }

int32_t Generation::accepted_tokens() const { return sum_of(&Choice::n_accepted); }

int32_t Generation::n_preemptions() const { return sum_of(&Choice::n_preemptions); }

std::string Generation::call_id(size_t index, int32_t call, const std::string& own) const {
  if (!own.empty()) return own;
  const std::string digest = sha256_hex(info_.id + "/" + std::to_string(index) + "/" + std::to_string(call));
  if (info_.parser && info_.parser->format->tools.has_short_ids) return digest.substr(0, 9);
  return info_.api->call_prefix + digest.substr(0, 24);
}

const char* Generation::finish_word() const {
  for (const Choice& choice : choices_) {
    if (choice.reason == FinishReason::kError) return finish_reason_name(choice.reason);
  }
  return choices_.empty() ? "none" : finish_reason_name(choices_[0].reason);
}

std::vector<std::pair<const char*, int32_t>> Generation::finishes() const {
  std::vector<std::pair<const char*, int32_t>> out;
  for (const Choice& choice : choices_) {
    if (!choice.finished) continue;
    const char* name = finish_reason_name(choice.reason);
    const auto known = std::ranges::find(out, name, &std::pair<const char*, int32_t>::first);
    known != out.end() ? static_cast<void>(++known->second) : static_cast<void>(out.emplace_back(name, 1));
  }
  return out;
}

std::array<double, kPhaseNames.size()> Generation::phases(double now) const {
  const Timing* last = nullptr;
  for (const Choice& choice : choices_) {
    if (choice.timing.ledger.until > (last != nullptr ? last->ledger.until : 0)) last = &choice.timing;
  }
  Ledger ledger;
  ledger.until = info_.arrived;
  ledger.pass(info_.submitted, Phase::kNetwork);
  if (last == nullptr) {  // no output has arrived
    ledger.pass(now, Phase::kQueue);
    return ledger.seconds;
  }
  ledger.pass(last->arrived, Phase::kQueue);  // the step that ran when it came
  for (size_t i = 0; i < ledger.seconds.size(); ++i) ledger.seconds[i] += last->ledger.seconds[i];
  ledger.until = last->ledger.until;
  ledger.pass(now, Phase::kNetwork);
  return ledger.seconds;
}

std::vector<SpanPhase> Generation::span_phases(double now) const {
  const Timing* first = nullptr;
  double last_token = 0, until = 0;
  for (const Choice& choice : choices_) {
    const Timing& t = choice.timing;
    last_token = std::max(last_token, t.last_token);
    until = std::max(until, t.ledger.until);
    if (t.first_token > 0 && (first == nullptr || t.first_token < first->first_token)) first = &t;
  }
  std::vector<SpanPhase> out = {{"read", info_.arrived, info_.submitted}};
  if (first == nullptr) {
    out.push_back({"queue", info_.submitted, now});
    return out;
  }
  out.push_back({"queue", info_.submitted, first->admitted});
  out.push_back({"prefill", first->admitted, first->first_token});
  out.push_back({"decode", first->first_token, last_token});
  out.push_back({"write", std::max(last_token, until), now});
  return out;
}

void Generation::write_ledger(JsonWriter& json) const {
  const double now = info_.clock->now();
  const auto phases = this->phases(now);
  json.key("ledger").begin_object();
  for (size_t i = 0; i < phases.size(); ++i) json.key(std::string(kPhaseNames[i]) + "_ms").number(phases[i] * 1e3, 3);
  json.key("total_ms").number((now - info_.arrived) * 1e3, 3).end_object();
}

std::vector<Generation::Progress> Generation::take_progress(Choice& choice, size_t index) const {
  std::vector<Progress> due;
  if (!std::exchange(choice.has_progress, false)) return due;
  const PromptFacts& prompt = prompt_of(index);
  Progress progress = {.total = info_.prompt_lens[index / static_cast<size_t>(info_.n)],
                       .cached = prompt.usage.cached_tokens,
                       .processed = prompt.usage.cached_tokens,
                       .time = std::max(0.0, prompt.timing.admitted - info_.submitted)};
  if (!std::exchange(choice.has_begun, true)) due.push_back(progress);
  progress.processed = choice.n_computed;
  progress.time = info_.clock != nullptr ? info_.clock->now() - info_.submitted : 0;
  due.push_back(progress);
  return due;
}

void Generation::Progress::write(JsonWriter& json) const {
  json.key("prompt_progress").begin_object().field("total", total).field("cache", cached);
  json.field("processed", processed).field("time_ms", static_cast<int64_t>(time * 1e3)).end_object();
}

void Generation::write_timings(JsonWriter& json) const {
  const RequestTimes t = times(info_.clock != nullptr ? info_.clock->now() : info_.arrived);
  const auto part = [&](const char* name, int64_t n, double seconds) {
    const std::string prefix = name;
    json.field(prefix + "_n", n).key(prefix + "_ms").number(seconds * 1e3, 3);
    json.key(prefix + "_per_token_ms").number(n > 0 ? seconds * 1e3 / static_cast<double>(n) : 0, 3);
    json.key(prefix + "_per_second").number(seconds > 0 ? static_cast<double>(n) / seconds : 0, 3);
  };
  json.key("timings").begin_object().field("cache_n", int64_t{cached_tokens()});
  part("prompt", prompt_tokens() - cached_tokens(), t.prefill);
  part("predicted", completion_tokens() - resumed_tokens(), t.decode);
  if (drafted_tokens() > 0)
    json.field("draft_n", int64_t{drafted_tokens()}).field("draft_n_accepted", int64_t{accepted_tokens()});
  json.end_object();
}

RequestTimes Generation::times(double now) const {
  RequestTimes times = itl_;
  times.phases = phases(now);
  for (double& seconds : times.phases) seconds = whole_microseconds(seconds);
  times.total = whole_microseconds(now - info_.arrived);
  double first_token = now;
  for (const PromptFacts& prompt : prompts_) {
    if (!prompt.seen || prompt.timing.first_token <= 0) continue;
    const double first = whole_microseconds(prompt.timing.first_token - info_.arrived);
    if (!times.has_first_token || first < times.first_token) {
      times.first_token = first;
      times.queue = whole_microseconds(prompt.timing.admitted - prompt.timing.arrived);
      times.prefill = whole_microseconds(prompt.timing.first_token - prompt.timing.admitted);
      first_token = prompt.timing.first_token;
    }
    times.has_first_token = true;
  }
  for (const Choice& choice : choices_)
    times.decode = std::max(times.decode, whole_microseconds(choice.last_time - first_token));
  return times;
}

}  // namespace ibid
