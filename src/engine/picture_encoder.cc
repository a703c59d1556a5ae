#include "engine/picture_encoder.h"

#include <algorithm>
#include <new>

#include "base/check.h"

namespace ibid {

PictureEncoder::PictureEncoder(const Tower& tower, Stream& stream, int64_t max_kept_bytes, const Clock& clock)
    : tower_(tower), stream_(stream), clock_(clock), max_kept_bytes_(max_kept_bytes) {}

void PictureEncoder::add(AdmittedRequest request) {
  CHECK(request->to_encode != nullptr && !request->to_encode->empty(), "a request that waits for no picture");
  const auto n = static_cast<int64_t>(request->to_encode->size());
  n_sequences_ += request->n_sequences();
  waiting_.push_back({std::move(request)});
  stats_.n_waiting += n;
}

int32_t PictureEncoder::cancel(RequestId id) {
  const auto found = std::ranges::find_if(waiting_, [id](const Waiting& w) { return w.request->id == id; });
  if (found == waiting_.end()) return 0;
  if (found == waiting_.begin()) run_ = nullptr;
  stats_.n_waiting -= static_cast<int64_t>(found->request->to_encode->size() - found->n_done);
  n_sequences_ -= found->request->n_sequences();
  const int32_t n = found->request->n;
  waiting_.erase(found);
  return n;
}

std::vector<AdmittedRequest> PictureEncoder::take_all() {
  std::vector<AdmittedRequest> out;
  for (Waiting& w : waiting_) out.push_back(std::move(w.request));
  waiting_.clear();
  run_ = nullptr;
  n_sequences_ = 0;
  stats_.n_waiting = 0;
  return out;
}

void PictureEncoder::advance(double seconds, const OnReady& on_ready, TowerPace pace) {
  const double begun = clock_.now();
  do {
    if (waiting_.empty()) return;
    Status done;
    try {
      done = step(pace);
    } catch (const std::bad_alloc&) {
      done = out_of_memory();
    }
    Waiting& first = waiting_.front();
    if (done.ok() && first.n_done < first.request->to_encode->size()) continue;
    if (!done) {
      run_ = nullptr;
      ++stats_.n_failed;
      stats_.n_waiting -= static_cast<int64_t>(first.request->to_encode->size() - first.n_done);
    }
    AdmittedRequest request = std::move(first.request);
    waiting_.pop_front();
    n_sequences_ -= request->n_sequences();
    on_ready(std::move(request), done);
  } while (clock_.now() - begun < seconds);
}

Status PictureEncoder::step(TowerPace pace) {
  Waiting& first = waiting_.front();
  PictureToEncode& picture = (*first.request->to_encode)[first.n_done];
  Values values = picture.rows->values;
  if (values == nullptr && run_ == nullptr) {
    values = find(picture.rows->digest);
    if (values != nullptr) ++stats_.n_found;
  }
  if (values == nullptr) {
    const double begun = clock_.now();
    if (run_ == nullptr) {
      ASSIGN_OR_RETURN(run_, tower_.begin({.grid_rows = picture.grid_rows,
                                           .grid_columns = picture.grid_columns,
                                           .patches = picture.patches}));
      picture.patches = {};
      picture.room = nullptr;
    }
    const bool is_done = run_->step(stream_, pace);
    stats_.seconds += clock_.now() - begun;
    if (!is_done) return {};
    values = counted(run_->take());
    run_ = nullptr;
    ++stats_.n_encoded;
    keep(picture.rows->digest, values);
  }
  picture.rows->values = std::move(values);
  picture.patches = {};
  picture.room = nullptr;
  ++first.n_done;
  --stats_.n_waiting;
  return {};
}

// Rows that are counted until no one holds them.
PictureEncoder::Values PictureEncoder::counted(std::vector<float> values) const {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
  auto* const rows = new std::vector<float>(std::move(values));
  *held_bytes_ += bytes;
  return {rows, [held = held_bytes_, bytes](const std::vector<float>* p) {
            *held -= bytes;
            delete p;
          }};
}

PictureEncoder::Values PictureEncoder::find(const Sha256Digest& digest) {
  const auto found = by_digest_.find(digest);
  if (found == by_digest_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found->second);
  return found->second->values;
}

void PictureEncoder::keep(const Sha256Digest& digest, Values values) {
  const auto bytes_of = [](const Values& v) { return static_cast<int64_t>(v->size() * sizeof(float)); };
  if (bytes_of(values) > max_kept_bytes_) return;
  stats_.kept_bytes += bytes_of(values);
  kept_.push_front({digest, std::move(values)});
  by_digest_.emplace(digest, kept_.begin());
  while (stats_.kept_bytes > max_kept_bytes_) {
    stats_.kept_bytes -= bytes_of(kept_.back().values);
    by_digest_.erase(kept_.back().digest);
    kept_.pop_back();
  }
}

}  // namespace ibid
