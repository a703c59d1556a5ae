#include "engine/record/recorder.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <new>

#include "engine/engine.h"
#include "engine/record/redaction.h"
#include "kernels/arithmetic_version.h"
#include "kernels/isa.h"

namespace ibid {

using record::Event;
using record::EventKind;

// The engine sees what the record can hold: whole nanoseconds. A reading that there is no memory for is missing in the
// record, which its replay reports.
double Recorder::RecordingClock::now() const {
  const auto ns = static_cast<int64_t>(std::llround(source_.now() * 1e9));
  try {
    readings_.push_back(ns);
  } catch (const std::bad_alloc&) {
  }
  return static_cast<double>(ns) * 1e-9;
}

Result<std::unique_ptr<Recorder>> Recorder::create(const RecorderOptions& options, const Clock& source) {
  auto redaction = options.redact ? std::make_unique<record::Redaction>() : nullptr;
  ASSIGN_OR_RETURN(auto file, record::FileWriter::create(options.path, std::move(redaction), options.max_backlog));
  return std::unique_ptr<Recorder>(new Recorder(options, std::move(file), source));
}

Recorder::~Recorder() {
  if (!has_begun_) ::unlink(path_.c_str());
}

std::unique_ptr<DurableStore> Recorder::recording(std::unique_ptr<DurableStore> store) {
  CHECK(!redacts_ && !has_begun_);
  return std::make_unique<record::RecordingStore>(std::move(store), disk_);
}

void Recorder::begin(Engine& engine, const std::string& model, int32_t n_threads) {
  has_begun_ = true;
  const ModelFacts& facts = engine.facts();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  record::Head head = {.version = IBID_VERSION,
                       .arithmetic = arithmetic_id(),
                       .model = model,
                       .isa = std::string(isa_name(selected_isa())),
                       .n_threads = n_threads,
                       .has_text = engine.has_text(),
                       .started = std::chrono::duration<double>(now).count(),
                       .vocab_size = facts.vocab_size,
                       .context_len = facts.context_len,
                       .window = facts.window,
                       .n_experts = facts.n_experts,
                       .n_experts_used = facts.n_experts_used,
                       .end_of_generation = facts.end_of_generation,
                       .options = engine.options(),
                       .n_blocks = engine.cache().pool().n_total(),
                       .n_host_blocks = engine.cache().pool(Tier::kHost).n_total(),
                       .disk = std::exchange(disk_.facts, {}),
                       .n_states = engine.cache().states().pool(Tier::kDevice).n_total(),
                       .n_host_states = engine.cache().states().pool(Tier::kHost).n_total(),
                       .sees_whole_pictures = facts.sees_whole_pictures};
  head.options.model_digest = facts.digest;  // names of blocks are made of it
  if (head.disk.image_bytes > 0) {
    head.disk.layout = layout_of(engine.kv(), facts);
    head.disk.rope = facts.rope;
  } else {
    head.options.disk_folder.clear();
  }
  add({.kind = EventKind::kHead, .head = std::move(head)});
  engine.observe(*this);
}

void Recorder::add(Event event) noexcept {
  event.readings = clock_.take();
  event.disk = std::exchange(disk_.inputs, {});
  file_->add(std::move(event));
}

void Recorder::submitted(const AdmittedRequest& request, const Status& taken) noexcept {
  add({.kind = EventKind::kSubmit, .request = request.request(), .was_taken = taken.ok(), .over = request.over()});
}

void Recorder::cancelled(RequestId id) noexcept { add({.kind = EventKind::kCancel, .id = id}); }

void Recorder::cancelled_all() noexcept { add({.kind = EventKind::kCancelAll}); }

void Recorder::preempted(RequestId id, int32_t choice) noexcept {
  add({.kind = EventKind::kPreempt, .id = id, .choice = choice});
}

void Recorder::stepped(const Engine& engine) noexcept {
  gatherer_.stepped(engine);
  add({.kind = EventKind::kStep, .step = gatherer_.take()});
}

}  // namespace ibid
