// StepLoad: what a step has to compute, in the terms that its time depends on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ibid {

struct StepLoad {
  int32_t n_prompt_tokens = 0;  // of shares of several tokens: prompts, and what is computed again
  int32_t n_decode_tokens = 0;  // of shares of one token, and drafts
  int32_t n_rows = 0;           // of logits
  int32_t n_sequences = 0;      // whose recurrent state, if the model has any, is read and written
  int64_t prompt_reads = 0;     // positions that their attention reads, summed over tokens
  int64_t decode_reads = 0;
  // Of drafts: what they read is read for their sequence's other rows anyway, so that it costs less. After a long
  // sequence that is most of what a draft would be thought to cost.
  int64_t draft_reads = 0;
  // Positions of blocks that have not been written yet: the system provides memory on the first write, which was
  // measured in a virtual machine to cost as much as a third of a prompt.
  int32_t n_new_positions = 0;

  bool empty() const { return n_prompt_tokens + n_decode_tokens == 0; }
  // n_tokens that follow each other after n_before others of their sequence; the last n_rows give logits.
  void add_prompt(int64_t n_before, int32_t n_tokens, int32_t n_rows_of_it) {
    n_prompt_tokens += n_tokens;
    prompt_reads += n_tokens * n_before + int64_t{n_tokens} * (n_tokens + 1) / 2;
    n_rows += n_rows_of_it;
    ++n_sequences;
  }
  void add_decode(int64_t n_before, int32_t n_tokens = 1) {
    n_decode_tokens += n_tokens;
    decode_reads += n_tokens * (n_before + 1);
    n_rows += n_tokens;
    ++n_sequences;
  }
  // The work of another.
  void add(const StepLoad& other) {
    n_prompt_tokens += other.n_prompt_tokens;
    n_decode_tokens += other.n_decode_tokens;
    n_rows += other.n_rows;
    n_sequences += other.n_sequences;
    prompt_reads += other.prompt_reads;
    decode_reads += other.decode_reads;
    draft_reads += other.draft_reads;
    n_new_positions += other.n_new_positions;
  }
  void add_drafts(int64_t n_before, int32_t n_tokens = 1) {
    n_decode_tokens += n_tokens;
    draft_reads += n_tokens * (n_before + 1);
    n_rows += n_tokens;
  }
};

// A step that was run to see how long it takes.
struct MeasuredStep {
  StepLoad load;
  double seconds = 0;
};
inline constexpr size_t kMostMeasuredSteps = 16;
// Blocks of the pool, from the first one on, that measure_steps() has in memory and writes.
inline constexpr int32_t kMeasuredBlocks = 8;

}  // namespace ibid
