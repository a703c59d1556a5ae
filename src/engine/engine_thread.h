// EngineThread: the one thread that owns an Engine, with a queue in and a queue out. Everything here may be called from
// any thread. The engine knows nothing of HTTP, JSON or sockets: servers and terminals speak to it through this.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/picture_encoder.h"

namespace ibid {

class EngineThread {
 public:
  // `on_output` is called on the engine's thread, at least once per step, with all new outputs, in order (none where it
  // computed a piece of a prompt), and the state after it: each new n_steps is reported once or more.
  // The outputs may be moved from. It must not block and must not throw: a server posts to its own executor from here.
  using OnOutput = std::function<void(std::span<Output>, const EngineStats&)>;
  // `pictures`: on the engine's stream; null: requests with pictures to encode are refused.
  EngineThread(std::unique_ptr<Engine> engine, OnOutput on_output, std::unique_ptr<PictureEncoder> pictures = nullptr);
  ~EngineThread();  // cancels what runs, then joins

  // A fresh id, never reused in this process.
  RequestId next_id();
  // True where submit() would refuse any request now; for those who would prepare one at some cost.
  bool is_full() const;
  // Bounded: kExhausted when too many requests wait. Validation errors come back here too (the checks are pure). Each
  // choice of a request that is taken has exactly one finished output, whatever happens.
  Status submit(Request request);
  void cancel(RequestId id);

  // The last published snapshot; at most one step old. `heartbeat` is when the thread last turned (idle turns count),
  // or a step got on, however long it lasts.
  EngineStats stats() const;
  double heartbeat() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ibid
