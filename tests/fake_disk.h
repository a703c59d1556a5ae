// FakeDisk: a DurableStore without a thread, whose medium outlives it as files would. What is asked for is done after a
// few calls of collect(), reads in their order; and a script of faults, drawn from a seed, breaks some of it as disks
// break: a read fails, a bit flips, a file vanishes or holds another block's bytes, a write fails, the disk is full.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "worker/durable_store.h"

namespace ibid::testing {

struct FakeMedium {
  struct File {
    std::vector<std::byte> image;
    int64_t age = 0;
  };
  std::map<DurableKey, File> files;
  int64_t n_broken = 0;  // faults that were played
};

struct FakeDiskScript {
  uint64_t seed = 1;
  int32_t n_images = 8;       // under way at once, each of reads and of writes
  int32_t most_per_turn = 4;  // reads and writes done in one collect()
  int32_t most_idle = 3;      // and up to so many turns in which nothing is
  int32_t fault_one_in = 0;   // 0: never
  double seconds = 1e-4;      // reported duration of a read
};

class FakeDisk final : public DurableStore {
 public:
  FakeDisk(std::shared_ptr<FakeMedium> medium, const BlockFormat& format, const FakeDiskScript& script)
      : medium_(std::move(medium)), format_(format), script_(script), random_(script.seed) {
    memory_.resize(static_cast<size_t>(4 * script.n_images));
    for (size_t i = 0; i < memory_.size(); ++i) {
      const ImageKind kind = i % 4 < 2 ? ImageKind::kBlock : ImageKind::kState;
      if (kind == ImageKind::kState && format.state_bytes == 0) continue;
      memory_[i].resize(static_cast<size_t>(format.image_bytes(kind)));
      (i % 2 == 0 ? to_read_ : to_write_)[static_cast<size_t>(kind)].push_back(memory_[i]);
    }
  }

  const BlockFormat& format() const override { return format_; }
  std::vector<DurableEntry> take_found() override {
    std::vector<DurableEntry> out;
    for (const auto& [key, file] : medium_->files)
      out.push_back({key, static_cast<int64_t>(file.image.size()), file.age});
    return out;
  }
  int64_t opened_at() const override { return 1'000'000; }

  std::span<std::byte> image_to_write(ImageKind kind) override { return take(to_write_, kind); }
  bool write(const DurableKey& key, int64_t age, std::span<std::byte> image) override {
    others_.push_back({key, age, 0, image, false});
    return true;
  }
  bool read(const DurableKey& key, int64_t age, int64_t ticket, ImageKind kind) override {
    const std::span<std::byte> image = take(to_read_, kind);
    if (image.empty()) return false;
    reads_.push_back({key, age, ticket, image, false});
    return true;
  }
  void touch(const DurableKey& key, int64_t age) override {
    if (medium_->files.contains(key)) medium_->files[key].age = age;
  }
  void remove(const DurableKey& key) override { others_.push_back({key, 0, 0, {}, true}); }

  void collect(std::vector<Done>& out) override {
    if (idle_ > 0) {
      --idle_;
      return;
    }
    for (int32_t n = 0; n < script_.most_per_turn && !(reads_.empty() && others_.empty()); ++n) {
      const bool is_read = !reads_.empty();
      const Command c = is_read ? reads_.front() : others_.front();
      (is_read ? reads_ : others_).pop_front();
      if (c.is_removal) {
        medium_->files.erase(c.key);
      } else if (is_read) {
        out.push_back(do_read(c));
      } else {
        out.push_back(do_write(c));
        give(to_write_, c.image);
      }
    }
    idle_ = static_cast<int32_t>(random_() % static_cast<uint64_t>(script_.most_idle + 1));
  }
  void release(std::span<std::byte> image) override { give(to_read_, image); }
  int32_t n_under_way() const override { return static_cast<int32_t>(reads_.size() + others_.size()); }
  void wait(double) override {}

 private:
  using Images = std::array<std::vector<std::span<std::byte>>, 2>;  // of each kind
  struct Command {
    DurableKey key;
    int64_t age, ticket;
    std::span<std::byte> image;
    bool is_removal;
  };

  static std::span<std::byte> take(Images& images, ImageKind kind) {
    auto& of_kind = images[static_cast<size_t>(kind)];
    if (of_kind.empty()) return {};
    const std::span<std::byte> image = of_kind.back();
    of_kind.pop_back();
    return image;
  }
  // It must not be read any more.
  void give(Images& images, std::span<std::byte> image) {
    std::ranges::fill(image, std::byte{0xee});
    images[static_cast<size_t>(kind_of(format_, image))].push_back(image);
  }
  bool breaks() {
    const bool out = script_.fault_one_in > 0 && random_() % static_cast<uint64_t>(script_.fault_one_in) == 0;
    medium_->n_broken += out;
    return out;
  }
  Done do_read(const Command& c) {
    Done done = {.is_read = true,
                 .kind = kind_of(format_, c.image),
                 .key = c.key,
                 .ticket = c.ticket,
                 .seconds = script_.seconds,
                 .image = c.image};
    auto file = medium_->files.find(c.key);
    if (file != medium_->files.end() && breaks()) {
      switch (random_() % 5) {
        case 0:
          done.outcome = BlockIo::kFailed;
          return done;
        case 1:
          file->second.image[random_() % file->second.image.size()] ^= std::byte(1 << random_() % 8);
          break;
        case 2:
          file->second.image.resize(random_() % file->second.image.size());
          break;
        case 3:
          file->second.image = medium_->files.begin()->second.image;
          break;
        case 4:
          medium_->files.erase(file), file = medium_->files.end();
      }
    }
    if (file == medium_->files.end()) {
      done.outcome = BlockIo::kMissing;
      return done;
    }
    // As a folder does: what has another length is not read.
    const bool has_length = file->second.image.size() == c.image.size();
    done.outcome = has_length ? check_image(format_, file->second.image, c.key) : BlockIo::kCorrupt;
    if (done.outcome != BlockIo::kDone) {
      medium_->files.erase(file);
      return done;
    }
    std::copy(file->second.image.begin(), file->second.image.end(), c.image.begin());
    file->second.age = c.age;
    return done;
  }
  Done do_write(const Command& c) {
    Done done = {.kind = kind_of(format_, c.image), .key = c.key, .seconds = script_.seconds};
    if (breaks()) {
      done.outcome = random_() % 2 == 0 ? BlockIo::kFailed : BlockIo::kNoSpace;
      return done;
    }
    seal_image(c.image);
    medium_->files[c.key] = {{c.image.begin(), c.image.end()}, c.age};
    return done;
  }

  std::shared_ptr<FakeMedium> medium_;
  BlockFormat format_;
  FakeDiskScript script_;
  std::mt19937_64 random_;
  std::vector<std::vector<std::byte>> memory_;
  Images to_read_, to_write_;
  std::deque<Command> reads_, others_;
  int32_t idle_ = 0;
};

}  // namespace ibid::testing
