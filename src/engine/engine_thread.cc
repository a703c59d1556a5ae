#include "engine/engine_thread.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "base/grow.h"
#include "base/thread_name.h"
#include "engine/admission.h"

namespace ibid {
namespace {

constexpr auto kIdleTurn = std::chrono::milliseconds(100);
// Of the time of steps, what pictures may take besides; and seconds of a turn without steps.
constexpr double kPictureShare = 1.0 / 3, kPictureTurn = 0.02;
// Seconds between two forecasts of the queue; and of the thread's time, what they may take.
constexpr double kForecastTurn = 0.05, kForecastShare = 0.01;
constexpr auto kWorkingTurn = std::chrono::milliseconds(1);  // idle, with something to do for later

// One entry of the queue in: a request, or the cancelling of one.
struct Errand {
  RequestId id{};
  std::optional<AdmittedRequest> request;  // none: cancel
};

}  // namespace

struct EngineThread::State {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<PictureEncoder> pictures;  // may be null
  OnOutput on_output;
  int32_t max_sequences, max_waiting;

  mutable std::mutex mutex;  // guards inbox, n_uncounted, stopping, stats
  std::condition_variable wake;
  std::vector<Errand> inbox;
  int32_t n_uncounted = 0;  // sequences that were taken and that `stats` does not know yet
  bool stopping = false;
  EngineStats stats;

  std::atomic<uint64_t> next_id{1};
  std::atomic<double> heartbeat{0};

  // The engine's thread alone:
  std::vector<Errand> errands;
  int32_t n_new_sequences = 0;  // of this turn
  double picture_credit = 0;    // seconds
  Engine::Forecast forecast;
  double next_forecast = 0;
  std::vector<Output> outputs;  // there is always room for those of one request

  std::thread thread;

  void loop();
  bool wait_for_errands(bool idle);
  void run_errands();
  Status take(AdmittedRequest request);
  void begin(AdmittedRequest request, const Status& ready);
  void cancel(RequestId id);
  void encode_pictures(bool idle, double step_seconds);
  void end_unstarted(RequestId id, int32_t n, FinishReason reason, const Error& error);
  void end_all();
  int32_t n_waiting_with(int32_t n) const;
  void look_ahead();
  void turn_finished(bool busy);
  void tell(bool busy);
};

void EngineThread::State::loop() {
  bool idle = true;
  while (wait_for_errands(idle)) {
    run_errands();
    const double begun = steady_clock().now();
    idle = !engine->step(outputs);
    if (pictures != nullptr && pictures->has_work()) {
      encode_pictures(idle, steady_clock().now() - begun);
      idle = false;
    }
    turn_finished(!idle);
  }
  end_all();
}

// False when the thread is to end.
bool EngineThread::State::wait_for_errands(bool idle) {
  std::unique_lock lock(mutex);
  const auto turn = engine->has_idle_work() ? kWorkingTurn : kIdleTurn;
  if (idle) wake.wait_for(lock, turn, [this] { return stopping || !inbox.empty(); });
  heartbeat = steady_clock().now();
  std::swap(errands, inbox);
  return !stopping;
}

void EngineThread::State::run_errands() {
  for (Errand& errand : errands) {
    if (!errand.request) {
      cancel(errand.id);
    } else if (pictures != nullptr && (*errand.request)->to_encode != nullptr) {
      const int32_t n = (*errand.request)->n, n_sequences = (*errand.request)->n_sequences();
      try {
        pictures->add(std::move(*errand.request));
      } catch (const std::bad_alloc&) {
        end_unstarted(errand.id, n, FinishReason::kError, out_of_memory());
        n_new_sequences += n_sequences;
      }
    } else {
      begin(std::move(*errand.request), {});
    }
  }
  errands.clear();
}

// Of a request that waits for nothing but the engine, or cannot have what it waited for.
void EngineThread::State::begin(AdmittedRequest request, const Status& ready) {
  const RequestId id = request->id;
  const int32_t n = request->n, n_sequences = request->n_sequences();
  const Status taken = ready.ok() ? take(std::move(request)) : ready;
  if (!taken) end_unstarted(id, n, FinishReason::kError, taken.error());
  n_new_sequences += n_sequences;
}

void EngineThread::State::cancel(RequestId id) {
  const int32_t n_before = pictures != nullptr ? pictures->n_sequences() : 0;
  const int32_t n = pictures != nullptr ? pictures->cancel(id) : 0;
  if (n == 0) return engine->cancel(id);
  end_unstarted(id, n, FinishReason::kCancelled, {});
  n_new_sequences += n_before - pictures->n_sequences();
}

// Beside steps pictures get a share of the time, saved up until it is a piece's; without any they get all of it.
void EngineThread::State::encode_pictures(bool idle, double step_seconds) {
  picture_credit += step_seconds * kPictureShare;
  if (!idle && (picture_credit <= 0 || !pictures->has_room())) return;
  const double begun = steady_clock().now();
  pictures->advance(
      idle ? kPictureTurn : picture_credit,
      [this](AdmittedRequest request, const Status& ready) { begin(std::move(request), ready); },
      idle ? TowerPace::kAlone : TowerPace::kBetweenSteps);
  picture_credit = idle ? 0 : picture_credit - (steady_clock().now() - begun);
}

// First makes room for all outputs that the engine will need for this request and all others: later there may be no
// memory to report its lack.
Status EngineThread::State::take(AdmittedRequest request) {
  const EngineStats now = engine->stats();
  try {
    grow(outputs, outputs.size() + 2 * static_cast<size_t>(now.n_running + now.n_waiting + request->n_sequences()));
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
  return engine->submit(std::move(request));
}

void EngineThread::State::end_unstarted(RequestId id, int32_t n, FinishReason reason, const Error& error) {
  if (outputs.capacity() - outputs.size() < static_cast<size_t>(n)) tell(false);
  for (int32_t choice = 0; choice < n; ++choice) {
    Output& out = outputs.emplace_back();
    out.request = id;
    out.choice = choice;
    out.finished = true;
    out.reason = reason;
    try {
      out.ending = std::make_unique<Ending>(Ending{.error = error});
    } catch (const std::bad_alloc&) {  // no Ending means out of memory
    }
  }
}

// Those that wait for the engine's thread, and those that it has.
void EngineThread::State::end_all() {
  for (const Errand& errand : errands) {
    if (errand.request) end_unstarted(errand.id, (*errand.request)->n, FinishReason::kCancelled, {});
  }
  for (const AdmittedRequest& r : pictures != nullptr ? pictures->take_all() : std::vector<AdmittedRequest>{})
    end_unstarted(r->id, r->n, FinishReason::kCancelled, {});
  tell(false);
  engine->cancel_all();
  engine->step(outputs);
  turn_finished(true);
}

// If a step has left some waiting, there is no place for further ones, be it for want of blocks; otherwise as many as
// may run at once will.
int32_t EngineThread::State::n_waiting_with(int32_t n) const {
  if (stats.n_waiting > 0) return stats.n_waiting + n_uncounted + n;
  return std::max(0, stats.n_running + n_uncounted + n - max_sequences);
}

void EngineThread::State::look_ahead() {
  const double begun = steady_clock().now();
  if (begun < next_forecast) return;
  try {
    forecast = engine->forecast();
  } catch (const std::bad_alloc&) {  // the last one stands
  }
  const double end = steady_clock().now();
  next_forecast = end + std::max(kForecastTurn, (end - begun) / kForecastShare);
}

void EngineThread::State::turn_finished(bool busy) {
  look_ahead();
  {
    const std::lock_guard lock(mutex);
    stats = engine->stats();
    stats.queue_tokens = forecast.queue_tokens;
    stats.first_token_seconds = forecast.first_token_seconds;
    if (pictures != nullptr) stats.pictures = pictures->stats();
    n_uncounted -= std::exchange(n_new_sequences, 0);
  }
  tell(busy);
  if (busy) heartbeat = steady_clock().now();
}

void EngineThread::State::tell(bool busy) {
  if (busy || !outputs.empty()) on_output(outputs, stats);
  outputs.clear();
}

EngineThread::EngineThread(std::unique_ptr<Engine> engine, OnOutput on_output, std::unique_ptr<PictureEncoder> pictures)
    : state_(std::make_unique<State>()) {
  state_->max_sequences = engine->options().max_sequences;
  state_->max_waiting = engine->options().max_waiting;
  state_->stats = engine->stats();
  state_->outputs.reserve(kMaxChoices);
  state_->heartbeat = steady_clock().now();
  state_->engine = std::move(engine);
  state_->pictures = std::move(pictures);
  state_->on_output = std::move(on_output);
  state_->thread = std::thread([state = state_.get()] {
    name_thread("ibid-engine");
    state->loop();
  });
}

EngineThread::~EngineThread() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_one();
  state_->thread.join();
}

RequestId EngineThread::next_id() { return RequestId{state_->next_id++}; }

Status EngineThread::submit(Request request) {
  if (request.to_encode != nullptr && state_->pictures == nullptr)
    return unsupported("No vision tower is loaded.", "image_url");
  ASSIGN_OR_RETURN(AdmittedRequest admitted, state_->engine->admit(std::move(request)));
  const std::lock_guard lock(state_->mutex);
  const int32_t n = admitted->n_sequences();
  TRY(may_wait(state_->n_waiting_with(0), state_->n_waiting_with(n), state_->max_waiting));
  const RequestId id = admitted->id;
  state_->inbox.push_back({id, std::move(admitted)});
  state_->n_uncounted += n;
  state_->wake.notify_one();
  return {};
}

void EngineThread::cancel(RequestId id) {
  const std::lock_guard lock(state_->mutex);
  state_->inbox.push_back({id, std::nullopt});
  state_->wake.notify_one();
}

bool EngineThread::is_full() const {
  const std::lock_guard lock(state_->mutex);
  return !may_wait(state_->n_waiting_with(0), state_->n_waiting_with(1), state_->max_waiting);
}

EngineStats EngineThread::stats() const {
  const std::lock_guard lock(state_->mutex);
  return state_->stats;
}

double EngineThread::heartbeat() const { return std::max(state_->heartbeat.load(), state_->engine->last_beat()); }

}  // namespace ibid
