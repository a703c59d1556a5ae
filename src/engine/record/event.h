// What a record is made of (docs/users/replay.md): a head, then all that entered the engine and all that its steps did,
// in order. A record is the engine's whole input: with it, the engine runs again, step for step.
//
// In the file each is a frame: bytes of the body (u32), the body's checksum (u32, the low half of XXH3), the body; all
// little-endian, after eight bytes that identify the format. The body is the kind, the clock's readings since the event
// before (nanoseconds, each as the difference from the one before it), what a disk tier answered since then, and the
// fields of the kind, listed below.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/record/recorded_disk.h"
#include "engine/state/engine_options.h"
#include "engine/state/request.h"
#include "engine/state/search_group.h"
#include "worker/forward_pass.h"

namespace ibid {

class Tokenizer;
namespace grammar {
class Grammars;  // sample/grammar/grammars.h
}

namespace record {

inline constexpr std::string_view kMagic = "ibidrec\13";  // the last byte is the version
inline constexpr int32_t kRecordedRowLen = 1;             // of pictures, whose rows no record has
inline constexpr size_t kFrameHead = 8;                   // bytes before a frame's body
inline constexpr uint32_t kMaxBody = 256 << 20;

enum class EventKind : uint8_t {
  kHead = 1,
  kSubmit,
  kCancel,
  kCancelAll,
  kPreempt,  // asked for from outside, as a debugger may
  kStep,
  kCompletion,  // of work beside the steps, when the engine learned of it; none is recorded yet
  kEnd,         // the writer ended, with the reason; a record without it was cut off
};

// Of the engine that was recorded.
struct Head {
  std::string version;     // of ibid
  std::string arithmetic;  // its name and number: "portable-3"
  std::string model;       // as it was named
  std::string isa;         // the kernels' table; all tables give the same bits
  int32_t n_threads = 0;
  bool is_redacted = false;
  bool has_text = false;
  double started = 0;  // seconds since 1970
  int32_t vocab_size = 0, context_len = 0, window = 0, n_experts = 0, n_experts_used = 0;
  std::vector<TokenId> end_of_generation;
  EngineOptions options;  // as completed: kv_bytes is what it became
  int32_t n_blocks = 0, n_host_blocks = 0;
  DiskFacts disk;
  int32_t n_states = 0, n_host_states = 0;  // of a model with recurrent layers
  bool sees_whole_pictures = false;         // ModelFacts
};

// Four digests of a step: who computes how much; on which blocks; what was drawn and what ended; what is left in the
// cache and the queue.
struct StepDigest {
  uint32_t batch = 0, blocks = 0, tokens = 0, state = 0;
  bool operator==(const StepDigest&) const = default;
};

// What became of a share of the plan; or of a further choice, which drew its first token from the row of another share.
struct ShareOutcome {
  RequestId request{};
  int32_t choice = 0;
  int32_t n_drafts = 0;                       // that were verified
  int32_t n_drawn = 0;                        // of Step::tokens; of an answer that ended, those before its end
  FinishReason reason = FinishReason::kNone;  // it ended with this step
  bool is_starved = false, is_unsound = false, has_failed = false;
  std::optional<SearchTurn> turn;  // of its search, which went on when this row was there; without grammars' states
};

struct Step {
  bool was_run = false;  // else there was nothing to do, and nothing below
  StepDigest digest;
  std::vector<ShareOutcome> shares;  // of the plan, in its order; then of further choices that began their answers
  std::vector<TokenId> tokens;
};

struct Event {
  EventKind kind = EventKind::kStep;
  std::vector<int64_t> readings;            // of the clock, in nanoseconds
  std::vector<DiskInput> disk;              // what a disk tier answered
  std::shared_ptr<const Request> request;   // kSubmit
  bool was_taken = false;                   // kSubmit
  FinishReason over = FinishReason::kNone;  // kSubmit: AdmittedRequest::over()
  RequestId id{};                           // kCancel, kPreempt
  int32_t choice = 0;                       // kPreempt
  Step step;
  std::string text;  // kCompletion, kEnd
  Head head;
};

// Appends the body. `last_reading` goes from event to event.
void encode(const Event& event, int64_t& last_reading, std::string& out);
// `tokenizer` compiles the texts in a request; null: stop strings and breakers are left out. `grammars`, of
// the same tokenizer, compiles grammars; null: they are left out.
Result<Event> decode(std::string_view body, int64_t& last_reading, const std::shared_ptr<const Tokenizer>& tokenizer,
                     grammar::Grammars* grammars = nullptr);

uint32_t checksum(std::string_view body);
std::string_view kind_name(EventKind kind);

}  // namespace record
}  // namespace ibid
