#include "worker/disk_thread.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/thread_name.h"
#include "tensor/buffer.h"
#include "worker/block_folder.h"

namespace ibid {
namespace {

constexpr int64_t kImageMemory = kDiskThreadBytes / 2;  // of a kind, each for reads and for writes
constexpr size_t kMaxCommands = 1 << 16;                // touches and removals that wait
constexpr double kFarewell = 5;                         // seconds

// How many images of a kind: each for reads and for writes. States are as large as many blocks, and few.
int64_t n_images(const BlockFormat& format, ImageKind kind) {
  if (kind == ImageKind::kBlock) return std::clamp<int64_t>(kImageMemory / format.image_bytes(), 4, 256);
  return format.state_bytes == 0 ? 0 : std::clamp<int64_t>(kImageMemory / format.image_bytes(kind), 2, 32);
}
static_assert(2 * (256 + 32) <= DurableStore::kMaxUnderWay);

// A fixed number of images in one buffer; the engine's thread takes and gives.
class ImagesOfAKind {
 public:
  static Result<ImagesOfAKind> create(int64_t image_bytes, int64_t n) {
    ImagesOfAKind out;
    ASSIGN_OR_RETURN(out.memory_, Buffer::allocate(cpu_memory(), static_cast<size_t>(n * image_bytes),
                                                   "blocks on their way to and from the disk"));
    for (int64_t i = 0; i < n; ++i)
      out.free_.push_back({out.memory_.data() + i * image_bytes, static_cast<size_t>(image_bytes)});
    return out;
  }
  std::span<std::byte> take() {
    if (free_.empty()) return {};
    const std::span<std::byte> image = free_.back();
    free_.pop_back();
    return image;
  }
  void give(std::span<std::byte> image) { free_.push_back(image); }  // there is room: it was taken from here

 private:
  Buffer memory_;
  std::vector<std::span<std::byte>> free_;
};

class Images {
 public:
  static Result<Images> create(const BlockFormat& format) {
    Images out(format);
    for (const ImageKind kind : {ImageKind::kBlock, ImageKind::kState}) {
      ASSIGN_OR_RETURN(ImagesOfAKind images, ImagesOfAKind::create(format.image_bytes(kind), n_images(format, kind)));
      out.of_kind_.push_back(std::move(images));
    }
    return out;
  }
  std::span<std::byte> take(ImageKind kind) { return of_kind_[static_cast<size_t>(kind)].take(); }
  void give(std::span<std::byte> image) { of_kind_[static_cast<size_t>(kind_of(format_, image))].give(image); }

 private:
  explicit Images(const BlockFormat& format) : format_(format) {}
  BlockFormat format_;
  std::vector<ImagesOfAKind> of_kind_;
};

class DiskThread final : public DurableStore {
 public:
  DiskThread(BlockFolder folder, const BlockFormat& format, Images to_read, Images to_write)
      : folder_(std::move(folder)),
        format_(format),
        opened_at_(
            std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
                .count()),
        to_read_(std::move(to_read)),
        to_write_(std::move(to_write)) {
    done_.reserve(kMaxUnderWay);
    thread_ = std::thread([this] {
      name_thread("ibid-disk");
      loop();
    });
  }
  ~DiskThread() override {
    {
      const std::lock_guard lock(mutex_);
      stops_at_ = steady_clock().now() + kFarewell;
      reads_.clear();
    }
    wake_.notify_one();
    thread_.join();
  }

  const BlockFormat& format() const override { return format_; }
  std::vector<DurableEntry> take_found() override { return folder_.take_found(); }
  int64_t opened_at() const override { return opened_at_; }

  std::span<std::byte> image_to_write(ImageKind kind) override { return to_write_.take(kind); }
  bool write(const DurableKey& key, int64_t age, std::span<std::byte> image) override {
    const bool taken = push(others_, {Kind::kWrite, key, age, 0, image});
    taken ? void(++n_under_way_) : to_write_.give(image);
    return taken;
  }
  bool read(const DurableKey& key, int64_t age, int64_t ticket, ImageKind kind) override {
    const std::span<std::byte> image = to_read_.take(kind);
    if (image.empty()) return false;
    const bool taken = push(reads_, {Kind::kRead, key, age, ticket, image});
    taken ? void(++n_under_way_) : to_read_.give(image);
    return taken;
  }
  void touch(const DurableKey& key, int64_t age) override { push(others_, {Kind::kTouch, key, age, 0, {}}); }
  void remove(const DurableKey& key) override { push(others_, {Kind::kRemove, key, 0, 0, {}}); }

  void collect(std::vector<Done>& out) override {
    const std::lock_guard lock(mutex_);
    for (Done& done : done_) {
      --n_under_way_;
      if (!done.is_read) to_write_.give(std::exchange(done.image, {}));
      out.push_back(done);
    }
    done_.clear();
  }
  void release(std::span<std::byte> image) override { to_read_.give(image); }
  int32_t n_under_way() const override { return n_under_way_; }
  void wait(double seconds) override {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return !done_.empty(); });
  }

 private:
  enum class Kind : uint8_t { kRead, kWrite, kTouch, kRemove };
  struct Command {
    Kind kind;
    DurableKey key;
    int64_t age, ticket;
    std::span<std::byte> image;
  };

  // False: no memory, or too much waits already.
  bool push(std::deque<Command>& queue, const Command& command) try {
    const std::lock_guard lock(mutex_);
    if (queue.size() >= kMaxCommands) return false;
    queue.push_back(command);
    wake_.notify_one();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }

  std::optional<Command> next() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return stops_at_ > 0 || !reads_.empty() || !others_.empty(); });
    const bool has_time = stops_at_ == 0 || steady_clock().now() < stops_at_;
    std::deque<Command>& queue = reads_.empty() ? others_ : reads_;
    if (queue.empty() || !has_time) return std::nullopt;
    const Command command = queue.front();
    queue.pop_front();
    return command;
  }

  void loop() {
    while (const std::optional<Command> command = next()) {
      if (command->kind == Kind::kTouch) folder_.touch(command->key, command->age);
      if (command->kind == Kind::kRemove) folder_.remove(command->key);
      if (command->kind == Kind::kTouch || command->kind == Kind::kRemove) continue;
      const double begin = steady_clock().now();
      Done done = {.is_read = command->kind == Kind::kRead,
                   .kind = kind_of(format_, command->image),
                   .key = command->key,
                   .ticket = command->ticket,
                   .image = command->image};
      if (done.is_read) {
        done.outcome = folder_.read(format_, done.key, command->age, done.image);
      } else {
        seal_image(done.image);
        done.outcome = folder_.write(done.key, command->age, done.image);
      }
      done.seconds = steady_clock().now() - begin;
      const std::lock_guard lock(mutex_);
      done_.push_back(done);  // room for all images from the start
      arrived_.notify_one();
    }
  }

  BlockFolder folder_;  // after the start, the thread's
  const BlockFormat format_;
  const int64_t opened_at_;
  Images to_read_, to_write_;  // the engine's thread's, as these:
  int32_t n_under_way_ = 0;

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_, arrived_;
  std::deque<Command> reads_, others_;
  std::vector<Done> done_;
  double stops_at_ = 0;

  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<DurableStore>> open_disk(const std::string& folder, const BlockFormat& format) {
  ASSIGN_OR_RETURN(BlockFolder files, BlockFolder::open(folder));
  ASSIGN_OR_RETURN(Images to_read, Images::create(format));
  ASSIGN_OR_RETURN(Images to_write, Images::create(format));
  return std::unique_ptr<DurableStore>(
      std::make_unique<DiskThread>(std::move(files), format, std::move(to_read), std::move(to_write)));
}

}  // namespace ibid
