// EngineThread: the one thread that owns an Engine, with a queue in and a queue out. Everything here may be called from
// any thread. The engine knows nothing of HTTP, JSON or sockets: servers and terminals speak to it through this.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/engine.h"

namespace ibid {

class EngineThread {
 public:
  // `on_output` is called on the engine's thread, once per step with all that the step made known, in order. It must
  // not block and must not throw: a server posts to its own executor from here.
  using OnOutput = std::function<void(std::vector<Output>&)>;
  EngineThread(std::unique_ptr<Engine> engine, OnOutput on_output);
  ~EngineThread();  // cancels what runs, then joins

  // A fresh id, never reused in this process.
  RequestId next_id();
  // True where submit() would refuse any request now; for those who would prepare one at some cost.
  bool is_full() const;
  // Bounded: kExhausted when too many requests wait. Validation errors come back here too (the checks are pure).
  Status submit(Request request);
  void cancel(RequestId id);

  // The last published snapshot; at most one step old. `heartbeat` is when the thread last turned (idle turns count).
  EngineStats stats() const;
  double heartbeat() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ibid
