#include "server/observe/live_view.h"

#include "base/json_writer.h"

namespace ibid {

void LiveView::add_step(const EngineStats& stats, double now) {
  const std::lock_guard lock(mutex_);
  if (n_steps_ > 0 && steps_[(n_steps_ - 1) % kSteps].number == stats.n_steps) return;
  steps_[n_steps_++ % kSteps] = {stats.n_steps,
                                 now,
                                 stats.step_plan,
                                 stats.step_forward,
                                 stats.step_sample,
                                 stats.step_settle,
                                 stats.step_prefill_tokens,
                                 stats.step_decode_tokens,
                                 stats.step_accepted,
                                 stats.step_drafted - stats.step_accepted,
                                 stats.n_running,
                                 stats.n_waiting,
                                 stats.blocks_free,
                                 stats.blocks_cached,
                                 stats.blocks_in_use,
                                 stats.blocks_shared};
}

std::shared_ptr<ActiveRow> LiveView::add_row() {
  auto row = std::make_shared<ActiveRow>();
  const std::lock_guard lock(mutex_);
  std::erase_if(rows_, [](const auto& known) { return known.expired(); });
  rows_.push_back(row);
  return row;
}

std::string LiveView::json(const EngineStats& stats, const std::vector<TenantFigures>& tenants, int64_t since,
                           double now) const {
  const std::lock_guard lock(mutex_);
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("steps_total", stats.n_steps);
  json.field("running", int64_t{stats.n_running}).field("waiting", int64_t{stats.n_waiting});
  json.key("blocks")
      .begin_object()
      .field("total", int64_t{stats.blocks_total})
      .field("free", int64_t{stats.blocks_free});
  json.field("cached", int64_t{stats.blocks_cached}).field("in_use", int64_t{stats.blocks_in_use});
  json.field("shared", int64_t{stats.blocks_shared}).end_object();
  json.key("tokens").begin_object().field("prompt", stats.prompt_tokens).field("cached", stats.cached_tokens);
  json.field("generated", stats.generated_tokens).field("drafted", stats.drafted_tokens);
  json.field("accepted", stats.accepted_tokens).end_object();
  json.field("preemptions", stats.n_preemptions).field("finished", stats.n_finished);
  json.field("cancelled", stats.n_cancelled).field("failed", stats.n_failed);
  json.key("steps").begin_array();
  for (size_t i = n_steps_ > kSteps ? n_steps_ - kSteps : 0; i < n_steps_; ++i) {
    const Step& step = steps_[i % kSteps];
    if (step.number <= since) continue;
    json.begin_object().field("n", step.number).key("age").number(now - step.at, 3);
    json.field("prefill", int64_t{step.prefill}).field("decode", int64_t{step.decode});
    json.field("accepted", int64_t{step.accepted}).field("refused", int64_t{step.refused});
    json.field("running", int64_t{step.running}).field("waiting", int64_t{step.waiting});
    json.field("free", int64_t{step.free}).field("cached", int64_t{step.cached});
    json.field("in_use", int64_t{step.in_use}).field("shared", int64_t{step.shared});
    json.key("plan_ms").number(step.plan * 1e3, 3).key("forward_ms").number(step.forward * 1e3, 3);
    json.key("sample_ms").number(step.sample * 1e3, 3).key("settle_ms").number(step.settle * 1e3, 3).end_object();
  }
  json.end_array().key("tenants").begin_array();
  for (const TenantFigures& t : tenants) {
    json.begin_object().field("tenant", t.tenant).field("sequences", t.sequences);
    json.field("tokens", t.tokens).field("refused", t.refused).end_object();
  }
  json.end_array().key("requests").begin_array();
  int64_t n_rows = 0;
  for (const auto& known : rows_) {
    const std::shared_ptr<ActiveRow> alive = known.lock();
    if (!alive || ++n_rows > kRows) continue;
    const ActiveRow& row = *alive;
    json.begin_object().field("route", row.route).key("age").number(now - row.arrived, 3);
    json.field("prompt_tokens", int64_t{row.prompt_tokens}).field("generated", int64_t{row.generated.load()});
    json.field("choices", int64_t{row.n_choices}).key("stream").boolean(row.stream).end_object();
  }
  json.end_array().field("requests_total", n_rows).end_object();
  return out;
}

}  // namespace ibid
