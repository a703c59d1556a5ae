// Recorder: writes down an engine's whole input and a digest of each step, while it runs. All time enters the engine
// through the recorder's clock, so that each reading is in the record.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine_observer.h"
#include "engine/record/record_file.h"
#include "engine/record/step_digest.h"

namespace ibid {

struct RecorderOptions {
  std::string path;
  bool redact = false;
  size_t max_backlog = record::FileWriter::kMaxBacklog;
};

class Recorder final : public EngineObserver {
 public:
  // `source` outlives the recorder.
  static Result<std::unique_ptr<Recorder>> create(const RecorderOptions& options, const Clock& source = steady_clock());
  ~Recorder() override;  // of what never began nothing is left

  // What the engine is made with, and reads from its own thread (or from the one that makes it) alone.
  const Clock& clock() const { return clock_; }
  // Stands before an engine's store, which then answers through the record. Before the engine is made; not where texts
  // are redacted, as blocks are named by them.
  std::unique_ptr<DurableStore> recording(std::unique_ptr<DurableStore> store);
  // Writes the head and listens from now on. Before the engine's first request; the recorder outlives the engine.
  void begin(Engine& engine, const std::string& model, int32_t n_threads);
  // From any thread.
  bool is_recording() const { return !file_->ended(); }
  int64_t bytes_written() const { return file_->bytes_written(); }

  void submitted(const AdmittedRequest& request, const Status& taken) noexcept override;
  void cancelled(RequestId id) noexcept override;
  void cancelled_all() noexcept override;
  void preempted(RequestId id, int32_t choice) noexcept override;
  void planned(const StepPlan& plan) noexcept override { gatherer_.planned(plan); }
  void ran(const StepPlan& plan, const StepResult& result) noexcept override { gatherer_.ran(plan, result); }
  void settled(const StepPlan& plan) noexcept override { gatherer_.settled(plan); }
  void stepped(const Engine& engine) noexcept override;

 private:
  class RecordingClock final : public Clock {
   public:
    explicit RecordingClock(const Clock& source) : source_(source) {}
    double now() const override;
    std::vector<int64_t> take() const { return std::exchange(readings_, {}); }

   private:
    const Clock& source_;
    mutable std::vector<int64_t> readings_;
  };
  Recorder(const RecorderOptions& options, std::unique_ptr<record::FileWriter> file, const Clock& source)
      : path_(options.path), redacts_(options.redact), clock_(source), file_(std::move(file)) {}
  void add(record::Event event) noexcept;

  const std::string path_;
  const bool redacts_;
  bool has_begun_ = false;
  RecordingClock clock_;
  std::unique_ptr<record::FileWriter> file_;
  record::StepGatherer gatherer_;
  record::DiskLog disk_;
};

}  // namespace ibid
