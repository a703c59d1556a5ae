// A disk tier in records: what a store answers the engine, and when, is input, as the clock's readings are. While it is
// recorded, RecordingStore stands before the real one and notes each answer; a replay's ReplayStore gives them again,
// without a disk. The bytes of keys and values are not kept: of a block that came back, its parent and tokens are, by
// which the engine knows it again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/durable_store.h"

namespace ibid::record {

// Of a store, when it was opened; without bytes of an image: there was none.
struct DiskFacts {
  std::string layout, rope;  // that keys are computed from (cache/durable_key.h)
  int64_t image_bytes = 0;
  int64_t state_image_bytes = 0;  // without states: that of a block
  int64_t opened_at = 0;
  std::vector<DurableEntry> found;
};

// An answer of the store, in the order in which the engine asked.
struct DiskInput {
  enum class Kind : uint8_t {
    kRoom,   // image_to_write() gave one
    kWrite,  // write() took it
    kRead,   // read() was taken
    kDone,   // collect() returned this block
    kDoneState,
  };
  Kind kind = Kind::kRoom;
  bool was_taken = false;  // but of what was done
  // Of kDone and kDoneState:
  bool is_read = false;
  BlockIo outcome = BlockIo::kDone;
  int64_t ticket = 0;
  double seconds = 0;
  DurableKey key = {}, parent = {};  // the parent, and its tokens: of what was read
  std::vector<TokenId> tokens;
  bool is_done() const { return kind == Kind::kDone || kind == Kind::kDoneState; }
};

// An answer that there is no memory for is missing, which the replay reports.
struct DiskLog {
  DiskFacts facts;  // but for the layout and the rope, which the engine knows
  std::vector<DiskInput> inputs;
};

class RecordingStore final : public DurableStore {
 public:
  // `log` outlives it.
  RecordingStore(std::unique_ptr<DurableStore> store, DiskLog& log) : store_(std::move(store)), log_(log) {}

  const BlockFormat& format() const override { return store_->format(); }
  std::vector<DurableEntry> take_found() override;
  int64_t opened_at() const override { return store_->opened_at(); }
  std::span<std::byte> image_to_write(ImageKind kind) override;
  bool write(const DurableKey& key, int64_t age, std::span<std::byte> image) override;
  bool read(const DurableKey& key, int64_t age, int64_t ticket, ImageKind kind) override;
  void touch(const DurableKey& key, int64_t age) override { store_->touch(key, age); }
  void remove(const DurableKey& key) override { store_->remove(key); }
  void collect(std::vector<Done>& done) override;
  void release(std::span<std::byte> image) override { store_->release(image); }
  int32_t n_under_way() const override { return store_->n_under_way(); }
  void wait(double seconds) override { store_->wait(seconds); }

 private:
  bool note(DiskInput::Kind kind, bool was_taken);
  std::unique_ptr<DurableStore> store_;
  DiskLog& log_;
};

class ReplayStore final : public DurableStore {
 public:
  // `format`: of the replay's own cells, which are smaller than those that were recorded.
  ReplayStore(const BlockFormat& format, DiskFacts facts);
  // Those of the next event. They are used up in order; a call for others is refused.
  void give(std::vector<DiskInput> inputs);
  // Whether something else was asked, or less than was given.
  bool is_off() const { return is_off_ || next_ < inputs_.size(); }

  const BlockFormat& format() const override { return format_; }
  std::optional<KeyFacts> key_facts() const override {
    return KeyFacts{facts_.layout, facts_.image_bytes, facts_.state_image_bytes};
  }
  std::vector<DurableEntry> take_found() override { return std::move(facts_.found); }
  int64_t opened_at() const override { return facts_.opened_at; }
  std::span<std::byte> image_to_write(ImageKind kind) override;
  bool write(const DurableKey& key, int64_t age, std::span<std::byte> image) override;
  bool read(const DurableKey& key, int64_t age, int64_t ticket, ImageKind kind) override;
  void touch(const DurableKey&, int64_t) override {}
  void remove(const DurableKey&) override {}
  void collect(std::vector<Done>& done) override;
  void release(std::span<std::byte>) override {}
  int32_t n_under_way() const override { return 0; }
  void wait(double) override {}

 private:
  bool answer(DiskInput::Kind kind);
  BlockFormat format_;
  DiskFacts facts_;
  std::vector<DiskInput> inputs_;
  size_t next_ = 0;
  bool is_off_ = false;
  std::vector<std::byte> to_write_;
  std::vector<std::vector<std::byte>> read_;  // since give()
};

}  // namespace ibid::record
