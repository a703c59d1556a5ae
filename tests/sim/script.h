// Script: all that happens to an engine from outside, as plain data. A world (how big it is, by which rules) and events
// by step. A run is a function of its script alone, so a script that fails can be printed, cut down and
// played again (`sim --script FILE`).
//
// As text, one line an event, fields that have their default left out:
//
//   world seed=7 steps=2000 block_len=8 n_blocks=20 context=64 ...
//   12 submit id=3 path=5 prompt=17 n=2 max=9 sampling=77
//   14 cancel id=3
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace ibid::sim {

struct World {
  int64_t seed = 0;  // of texts and drafts
  int64_t n_steps = 0;
  int64_t block_len = 8;
  int64_t n_blocks = 16;
  int64_t context_len = 64;
  int64_t step_tokens = 32;
  int64_t max_sequences = 4;
  int64_t max_rows = 4;
  int64_t max_waiting = 64;
  int64_t window = 0;
  int64_t hash_bits = 128;
  int64_t prefix_cache = 1;
  int64_t policy = 0;      // of kPolicies (start.cc)
  int64_t max_drafts = 0;  // 0: no proposer
  int64_t drafts = 0;      // 0: what is right, mostly; 1: anything
  int64_t segment = 7;     // tokens between two branches of the tree of texts
  int64_t max_itl = 0;     // milliseconds; 0: the engine's own choice
  int64_t host_blocks = 0;
  int64_t disk_blocks = 0;  // 0: no disk
  int64_t disk_faults = 0;  // one in so many reads and writes goes wrong (tests/fake_disk.h); 0: none
  int64_t disk_idle = 3;    // turns that it may do nothing
  bool operator==(const World&) const = default;
};

enum class EventKind : uint8_t {
  kSubmit,
  kCancel,   // the request `id`
  kHangUp,   // all of a tenant's requests, as where its connection breaks
  kPreempt,  // choice `n` of the request `id` loses its blocks, as if there were no room
  kStall,    // the clock goes on by `max` milliseconds
  kRestart,  // the process ends, whatever runs, and another begins over what lies on the disk
};

struct Event {
  int64_t step = 0;
  EventKind kind = EventKind::kSubmit;
  int64_t id = 0;
  // A prompt is a path from the root of the world's tree of texts: at each branch the next two bits of `path` choose.
  int64_t path = 0;
  int64_t prompt_len = 1;
  int64_t twist = -1;  // this token of the prompt is one of its own
  int64_t after = 0;   // the prompt goes on from this request's prompt and answer (0: none), if both fit the context
  int64_t n = 1;
  int64_t max_tokens = -1;
  int64_t min_tokens = 0;
  int64_t priority = 0;
  int64_t tenant = 0;
  int64_t salt = 0;
  int64_t score = -1;    // prompt_logprobs
  int64_t stops = 0;     // bits: a stop string of one token, one of several, a stop id
  int64_t sampling = 0;  // 0: greedy; even: by temperature; odd: any stages (random_sampling.h)
  int64_t keep_eos = 1;  // 0: ignore_eos
  bool operator==(const Event&) const = default;
};

struct Script {
  World world;
  std::vector<Event> events;  // ascending by step
  bool operator==(const Script&) const = default;
};

// Everything by the seed.
Script random_script(uint64_t seed, int64_t n_steps);

std::string text_of(const Script& script);
Result<Script> read_script(const std::string& text);

// What a shrinker may set back, field by field.
struct EventField {
  const char* name;
  int64_t Event::*value;
};
std::span<const EventField> event_fields();

}  // namespace ibid::sim
