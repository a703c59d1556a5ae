// Ledger: where the time of one choice went, from its arrival on. Each stretch of time is somebody's: passing from one
// to the next keeps the sum equal to the time that has passed. Plain data of the engine's thread; it goes out with each
// Output.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ibid {

enum class Phase : uint8_t {
  kQueue,      // until its first step; a further choice of a request: until the first one has computed the prompt
  kPrefill,    // its part, by tokens, of forward passes over the prompt; a further choice has none
  kDecode,     // the same of its answer
  kSampling,   // its rows' part of scoring, drawing and verifying
  kOthers,     // the rest of its steps, which is others' work and bookkeeping, and steps without it while it ran
  kPreempted,  // without its blocks, and computing again what it had
  kSwapped,    // waiting for blocks from a disk
  kNetwork,    // outside the engine: reading, tokenising, writing; set by the server
};
inline constexpr std::array kPhaseNames = {"queue",  "prefill",   "decode",  "sampling",
                                           "others", "preempted", "swapped", "network"};

struct Ledger {
  std::array<double, kPhaseNames.size()> seconds = {};
  double until = 0;  // on the engine's clock: up to there all is accounted for

  double& operator[](Phase phase) { return seconds[static_cast<size_t>(phase)]; }
  // The time since `until` was all of this phase.
  void pass(double now, Phase phase) {
    (*this)[phase] += now - until;
    until = now;
  }
  // A step that began at `until`, and what of it was the choice's own: a forward pass, what was computed `again`,
  // drawing; the rest was others'.
  void pass_step(double now, Phase own, double forward, double again, double sampling) {
    (*this)[own] += forward;
    (*this)[Phase::kPreempted] += again;
    (*this)[Phase::kSampling] += sampling;
    (*this)[Phase::kOthers] += (now - until) - forward - again - sampling;
    until = now;
  }
};

}  // namespace ibid
