// DurableStore: where blocks and recurrent states lie that outlive the process, as the engine's thread sees it. Reading
// and writing happen beside the steps: what is asked for comes back by collect(), which the engine calls in one place,
// at the start of a step. disk_thread.h is the real one; tests script one (tests/fake_disk.h).
//
// The engine decides and counts (cache/durable_index.h): which keys are there, which go. The store obeys, later. All
// methods are for one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/durable_index.h"
#include "worker/block_image.h"

namespace ibid {

class DurableStore {
 public:
  struct Done {
    bool is_read = false;  // else written
    ImageKind kind = ImageKind::kBlock;
    BlockIo outcome = BlockIo::kDone;
    DurableKey key = {};
    int64_t ticket = 0;          // of a read
    double seconds = 0;          // that the store took for it
    std::span<std::byte> image;  // of a read, checked; release() gives it back
  };
  virtual ~DurableStore() = default;

  virtual const BlockFormat& format() const = 0;
  // The layout in keys, and the size of an image of each kind in a budget: of a store that stands for another one (a
  // replay's).
  // Other stores return nothing, and the engine's own values apply.
  struct KeyFacts {
    std::string layout;
    int64_t image_bytes = 0, state_image_bytes = 0;
  };
  virtual std::optional<KeyFacts> key_facts() const { return {}; }
  // What was there when it was opened, in any order, and what time it was then (DurableIndex::set_now). Once.
  virtual std::vector<DurableEntry> take_found() = 0;
  virtual int64_t opened_at() const = 0;

  // Room for an image to write; empty where all of it is in use. It goes back by write(), whatever comes of it. False:
  // it was not taken.
  virtual std::span<std::byte> image_to_write(ImageKind kind) = 0;
  virtual bool write(const DurableKey& key, int64_t age, std::span<std::byte> image) = 0;
  // False: no room now. The file becomes so young.
  virtual bool read(const DurableKey& key, int64_t age, int64_t ticket, ImageKind kind) = 0;
  // These two may get lost, which costs a file's place in the order, or room on the disk until the next start.
  virtual void touch(const DurableKey& key, int64_t age) = 0;
  virtual void remove(const DurableKey& key) = 0;

  // Appends what is done since the last time, reads in the order in which they were asked for. Never more than
  // kMaxUnderWay at once.
  static constexpr size_t kMaxUnderWay = 576;
  virtual void collect(std::vector<Done>& done) = 0;
  virtual void release(std::span<std::byte> image) = 0;
  virtual int32_t n_under_way() const = 0;  // reads and writes that were not collected yet
  // Returns when there is something to collect, at the latest after so many seconds.
  virtual void wait(double seconds) = 0;
};

}  // namespace ibid
