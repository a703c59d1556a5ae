// PictureEncoder: runs a vision tower for the requests that show pictures, between an engine's steps. A request waits
// here until its pictures have rows, and then goes to the engine. Pictures are made in the order in which they came,
// each in pieces of some milliseconds; advance() does as many as fit the time that it is given, so that answers under
// way go on. Rows of pictures that were shown lately are kept, by digest.
//
// Threads: the engine's thread; Tower's const members from any.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/admission.h"
#include "engine/state/engine_options.h"
#include "model/vision/prompt_pictures.h"
#include "model/vision/tower.h"
#include "tensor/stream.h"

namespace ibid {

// A picture whose rows are not made yet. The rows are those of Request::pictures.
struct PictureToEncode {
  std::shared_ptr<PictureRows> rows;
  int32_t grid_rows = 0, grid_columns = 0;  // patches
  std::vector<float> patches;               // let go once they are read, with
  std::shared_ptr<void> room = nullptr;     // what its reader holds for them; may be null
};

class PictureEncoder {
 public:
  // `tower` and `stream` outlive it. `max_kept_bytes`: of rows that no request needs any more; further pictures wait
  // while requests hold twice as much.
  PictureEncoder(const Tower& tower, Stream& stream, int64_t max_kept_bytes, const Clock& clock = steady_clock());

  // Takes a request whose Request::to_encode is not empty.
  void add(AdmittedRequest request);
  // Forgets a request, and returns its number of choices; 0: it is not here.
  int32_t cancel(RequestId id);
  bool has_work() const { return !waiting_.empty(); }
  // False: the rows of the requests that were handed over are many; more come when some of these have ended.
  bool has_room() const { return *held_bytes_ - stats_.kept_bytes <= 2 * max_kept_bytes_; }
  int32_t n_sequences() const { return n_sequences_; }  // that wait here
  // Pieces until so many seconds have passed, at least one; then hands over the requests that have all their pictures,
  // in the order in which they came, or with the error that keeps one from it.
  using OnReady = std::function<void(AdmittedRequest, const Status&)>;
  void advance(double seconds, const OnReady& on_ready, TowerPace pace = TowerPace::kBetweenSteps);
  // All that wait, as cancelled ones.
  std::vector<AdmittedRequest> take_all();
  const PictureStats& stats() const { return stats_; }

 private:
  using Values = std::shared_ptr<const std::vector<float>>;
  struct Kept {
    Sha256Digest digest;
    Values values;
  };
  struct Waiting {
    AdmittedRequest request;
    size_t n_done = 0;  // of its pictures
  };
  Status step(TowerPace pace);  // one piece of the first request's next picture
  Values counted(std::vector<float> values) const;
  void keep(const Sha256Digest& digest, Values values);
  Values find(const Sha256Digest& digest);

  const Tower& tower_;
  Stream& stream_;
  const Clock& clock_;
  const int64_t max_kept_bytes_;
  std::deque<Waiting> waiting_;
  std::unique_ptr<TowerRun> run_;  // of the first one's next picture; null: not begun
  int32_t n_sequences_ = 0;
  std::list<Kept> kept_;  // the last shown first
  std::unordered_map<Sha256Digest, std::list<Kept>::iterator, PictureHash> by_digest_;
  std::shared_ptr<std::atomic<int64_t>> held_bytes_ = std::make_shared<std::atomic<int64_t>>(0);  // of all rows
  PictureStats stats_;
};

}  // namespace ibid
