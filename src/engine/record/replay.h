// Replay: a record runs again, step for step, on an engine of its own whose time is the record's, and each step is held
// against what was recorded: the same batch on the same blocks, the same tokens, the same state after it. With the
// model, tokens are computed again, but for those of requests whose tokens depend on their drafts (Verifier), which no
// record has; without it all come from the record, so that scheduling replays on any machine.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/record/record_file.h"

namespace ibid {

// Gives the readings of a record. One that is asked for more often than the record was stands still.
class ReplayClock final : public Clock {
 public:
  double now() const override;
  void give(std::vector<int64_t> readings);
  size_t n_left() const { return readings_.size() - next_; }
  int64_t n_beyond() const { return n_beyond_; }  // readings that the record has not, since give()
  double last() const { return last_; }

 private:
  std::vector<int64_t> readings_;
  mutable size_t next_ = 0;
  mutable int64_t n_beyond_ = 0;
  mutable double last_ = 0;
};

struct ReplayResult {
  int64_t n_steps = 0;     // that computed something
  int64_t n_turns = 0;     // of the engine, those with nothing to do included
  int64_t n_requests = 0;  // taken
  int64_t n_tokens = 0;    // drawn
  int64_t n_recorded = 0;  // of them, taken from the record
  double seconds = 0;      // from the record's first reading to its last
  std::string difference;  // the first one, where and what; empty: there is none
  std::string end;         // how the record ends
};

class Replay {
 public:
  static Result<std::unique_ptr<Replay>> open(const std::string& path);
  ~Replay();

  const record::Head& head() const { return head_; }
  // What the engine must be made with; outlived by nothing of this.
  const Clock& clock() const { return clock_; }
  double now() const { return clock_.last(); }  // the reading that was given last
  // As it was recorded: for Engine::create with the record's own model.
  const EngineOptions& options() const { return head_.options; }
  // An engine of the record's size whose tokens come from the record. `stream` outlives it.
  Result<std::unique_ptr<Engine>> engine_without_model(Stream& stream);
  // With a model: what finds the adapters that requests had by their digests (AdapterShelf::find_digest); null: none.
  using FindAdapter = std::function<std::shared_ptr<const PlacedAdapter>(const std::string& digest)>;
  void use_adapters(FindAdapter find) { find_adapter_ = std::move(find); }
  // Once. `tokenizer` is the engine's; null for one without a model. `watcher` observes the engine, and may be null. An
  // error: the record contains what no ibid writes.
  Result<ReplayResult> run(Engine& engine, const std::shared_ptr<const Tokenizer>& tokenizer,
                           EngineObserver* watcher = nullptr);

 private:
  class Checker;
  class Draws;
  class RecordedDrafts;
  explicit Replay(record::FileReader file);
  std::string apply(Engine& engine, const record::Event& event, std::vector<Output>& outputs);

  record::FileReader file_;
  FindAdapter find_adapter_;
  bool has_model_ = true;
  record::Head head_;
  ReplayClock clock_;
  std::unique_ptr<Draws> recorded_;
  RecordedDrafts* recorded_drafts_ = nullptr;  // the engine's
  record::ReplayStore* disk_ = nullptr;        // likewise; null: the record has none
};

}  // namespace ibid
