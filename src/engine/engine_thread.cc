#include "engine/engine_thread.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

namespace ibid {
namespace {

constexpr auto kIdleTurn = std::chrono::milliseconds(100);

// One entry of the queue in: a request, or the cancelling of one.
struct Errand {
  RequestId id{};
  std::unique_ptr<Request> request;  // null: cancel
};

}  // namespace

struct EngineThread::State {
  std::unique_ptr<Engine> engine;
  OnOutput on_output;
  int32_t max_waiting;

  mutable std::mutex mutex;  // guards inbox, n_in_inbox, stopping, stats
  std::condition_variable wake;
  std::vector<Errand> inbox;
  int32_t n_in_inbox = 0;  // sequences
  bool stopping = false;
  EngineStats stats;

  std::atomic<uint64_t> next_id{1};
  std::atomic<double> heartbeat{0};

  // The engine's thread alone:
  std::vector<Errand> errands;
  size_t n_run = 0;  // of errands
  std::vector<Output> outputs;

  std::thread thread;

  void loop();
  bool wait_for_errands(bool idle);
  void run_errands();
  bool make_room(int32_t n_outputs);
  void end_unstarted(RequestId id, int32_t n, FinishReason reason, const Error& error);
  void turn_finished(bool busy);
};

void EngineThread::State::loop() {
  bool idle = true;
  while (wait_for_errands(idle)) {
    run_errands();
    idle = !engine->step(outputs);
    turn_finished(!idle);
  }
  engine->cancel_all();
  for (; n_run < errands.size(); ++n_run) {
    const Errand& errand = errands[n_run];
    if (errand.request) end_unstarted(errand.id, errand.request->n, FinishReason::kCancelled, {});
  }
  engine->step(outputs);
  turn_finished(true);
}

// False when the thread is to end. What came in is in `errands` then too.
bool EngineThread::State::wait_for_errands(bool idle) {
  std::unique_lock lock(mutex);
  if (idle) wake.wait_for(lock, kIdleTurn, [this] { return stopping || !inbox.empty(); });
  heartbeat = steady_clock().now();
  if (n_run == errands.size()) {
    errands.clear();
    n_run = 0;
    std::swap(errands, inbox);
    n_in_inbox = 0;
  }
  return !stopping;
}

// One that cannot be answered for want of memory waits for the next turn, and those behind it too.
void EngineThread::State::run_errands() {
  for (; n_run < errands.size(); ++n_run) {
    Errand& errand = errands[n_run];
    if (!errand.request) {
      engine->cancel(errand.id);
      continue;
    }
    const int32_t n = errand.request->n;
    if (!make_room(n)) return;
    if (Status taken = engine->submit(std::move(*errand.request)); !taken) {
      end_unstarted(errand.id, n, FinishReason::kError, taken.error());
    }
    errand.request = nullptr;
  }
}

bool EngineThread::State::make_room(int32_t n_outputs) {
  const size_t n = outputs.size() + static_cast<size_t>(n_outputs);
  try {
    if (outputs.capacity() < n) outputs.reserve(2 * n);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void EngineThread::State::end_unstarted(RequestId id, int32_t n, FinishReason reason, const Error& error) {
  if (!make_room(n)) return;
  for (int32_t choice = 0; choice < n; ++choice) {
    Output& out = outputs.emplace_back();
    out.request = id;
    out.choice = choice;
    out.finished = true;
    out.reason = reason;
    try {
      out.error = error;
    } catch (const std::bad_alloc&) {
      out.error = out_of_memory();
    }
  }
}

void EngineThread::State::turn_finished(bool busy) {
  {
    const std::lock_guard lock(mutex);
    stats = engine->stats();
  }
  if (!outputs.empty()) on_output(outputs);
  outputs.clear();
  if (busy) heartbeat = steady_clock().now();
}

EngineThread::EngineThread(std::unique_ptr<Engine> engine, OnOutput on_output) : state_(std::make_unique<State>()) {
  state_->max_waiting = engine->options().max_waiting;
  state_->stats = engine->stats();
  state_->heartbeat = steady_clock().now();
  state_->engine = std::move(engine);
  state_->on_output = std::move(on_output);
  state_->thread = std::thread([state = state_.get()] { state->loop(); });
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
  TRY(state_->engine->validate(request));
  const std::lock_guard lock(state_->mutex);
  const int32_t n_waiting = state_->stats.n_waiting + state_->n_in_inbox;
  if (n_waiting > 0 && n_waiting + request.n > state_->max_waiting) {
    return exhausted("The queue is full (" + std::to_string(n_waiting) + " sequences wait); try again later.");
  }
  const RequestId id = request.id;
  state_->inbox.push_back({id, std::make_unique<Request>(std::move(request))});
  state_->n_in_inbox += state_->inbox.back().request->n;
  state_->wake.notify_one();
  return {};
}

void EngineThread::cancel(RequestId id) {
  const std::lock_guard lock(state_->mutex);
  state_->inbox.push_back({id, nullptr});
  state_->wake.notify_one();
}

EngineStats EngineThread::stats() const {
  const std::lock_guard lock(state_->mutex);
  return state_->stats;
}

double EngineThread::heartbeat() const { return state_->heartbeat; }

}  // namespace ibid
