// KvEvents over ZeroMQ: a PUB socket for the payloads, a ROUTER socket for those that a subscriber has missed. The
// library is opened when it is asked for, so that the program runs where it is not installed.
#include <dlfcn.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <type_traits>

#include "base/quoted.h"
#include "base/thread_name.h"
#include "cache/prefix_tree.h"
#include "server/observe/kv_events.h"

namespace ibid {
namespace {

// What is used of libzmq 4, whose binary interface is that of libzmq.so.5.
constexpr int kPub = 1, kRouter = 6, kReceiveMore = 13, kLinger = 17, kSendMark = 23, kDontWait = 1, kSendMore = 2;
constexpr short kPollIn = 1;
struct PollItem {
  void* socket;
  int fd;
  short events, revents;
};
struct Zmq {
  void* (*ctx_new)();
  int (*ctx_term)(void*);
  void* (*socket)(void*, int);
  int (*close)(void*);
  int (*bind)(void*, const char*);
  int (*setsockopt)(void*, int, const void*, size_t);
  int (*getsockopt)(void*, int, void*, size_t*);
  int (*send)(void*, const void*, size_t, int);
  int (*recv)(void*, void*, size_t, int);
  int (*poll)(PollItem*, int, long);
  int (*last_error)();
  const char* (*strerror)(int);
};

// Opened once, and kept. Null: it is not there.
const Zmq* zmq() {
  static const std::optional<Zmq> kFunctions = []() -> std::optional<Zmq> {
    void* library = dlopen("libzmq.so.5", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return std::nullopt;
    Zmq z{};
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    const bool has_all = find(z.ctx_new, "zmq_ctx_new") && find(z.ctx_term, "zmq_ctx_term") &&
                         find(z.socket, "zmq_socket") && find(z.close, "zmq_close") && find(z.bind, "zmq_bind") &&
                         find(z.setsockopt, "zmq_setsockopt") && find(z.getsockopt, "zmq_getsockopt") &&
                         find(z.send, "zmq_send") && find(z.recv, "zmq_recv") && find(z.poll, "zmq_poll") &&
                         find(z.last_error, "zmq_errno") && find(z.strerror, "zmq_strerror");
    return has_all ? std::optional(z) : std::nullopt;
  }();
  return kFunctions ? &*kFunctions : nullptr;
}

// The last field of CacheScope::spelled(), tenant and salt: what stands after the fifth length and its bytes.
std::string_view salt_in(std::string_view spelled) {
  for (int field = 0; field < 5; ++field) {
    const size_t colon = spelled.find(':');
    if (colon == std::string_view::npos) return {};
    size_t n = 0;
    for (const char c : spelled.substr(0, colon)) n = 10 * n + static_cast<size_t>(c - '0');
    spelled.remove_prefix(std::min(spelled.size(), colon + 1 + n));
  }
  const size_t colon = spelled.find(':');
  return colon == std::string_view::npos ? std::string_view() : spelled.substr(colon + 1);
}

std::array<char, 8> big_endian(int64_t n) {
  std::array<char, 8> out{};
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(static_cast<uint64_t>(n) >> (56 - 8 * i));
  return out;
}

class Socket {
 public:
  Socket(void* context, int type) : socket_(zmq()->socket(context, type)) {
    const int none = 0;
    if (socket_ != nullptr) zmq()->setsockopt(socket_, kLinger, &none, sizeof none);
  }
  ~Socket() {
    if (socket_ != nullptr) zmq()->close(socket_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  void* get() const { return socket_; }
  Status bind(const std::string& endpoint, const char* flag) {
    const int most = 100'000;
    if (socket_ != nullptr) zmq()->setsockopt(socket_, kSendMark, &most, sizeof most);
    if (socket_ != nullptr && zmq()->bind(socket_, endpoint.c_str()) == 0) return {};
    return invalid(std::string(flag) + ": " + in_quotes(endpoint, 256) +
                       " cannot be bound: " + zmq()->strerror(zmq()->last_error()) + ".",
                   flag);
  }
  // Frames of one message; none where no one takes them in now.
  void send(std::span<const std::string_view> frames) const {
    for (size_t i = 0; i < frames.size(); ++i) {
      const int more = i + 1 < frames.size() ? kSendMore : 0;
      if (zmq()->send(socket_, frames[i].data(), frames[i].size(), kDontWait | more) < 0) return;
    }
  }

 private:
  void* socket_;
};

struct Context {
  void* context = zmq()->ctx_new();
  ~Context() { zmq()->ctx_term(context); }
};

class ZmqKvEvents final : public KvEvents {
 public:
  ZmqKvEvents(const KvEventOptions& options, int32_t block_len)
      : options_(options),
        block_len_(block_len),
        wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        events_socket_(context_.context, kPub),
        replay_socket_(context_.context, kRouter) {
    events_.push_back({});  // all is cleared
  }
  ~ZmqKvEvents() override {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    wake();
    if (thread_.joinable()) thread_.join();
    if (wake_ >= 0) close(wake_);
  }

  Status start() {
    TRY(events_socket_.bind(options_.endpoint, "--kv-events"));
    if (!options_.replay_endpoint.empty()) TRY(replay_socket_.bind(options_.replay_endpoint, "--kv-events-replay"));
    stepped();
    thread_ = std::thread([this] { run(); });
    return {};
  }

  void settled(const PrefixTree& tree, NodeId node, Tier tier) noexcept override {
    try {
      const NodeId parent = tree.parent_of(node);
      const bool has_parent = parent != NodeId::kNone;
      add_stored(events_, tier, tree.hash_of(node), has_parent, has_parent ? tree.hash_of(parent) : 0,
                 tree.tokens_of(node), has_parent ? std::string_view() : salt_in(tree.scope_of(node)));
    } catch (const std::bad_alloc&) {
      is_lost_ = true;
    }
  }
  void left(const PrefixTree& tree, NodeId node, Tier tier) noexcept override {
    try {
      add_removed(events_, tier, tree.hash_of(node));
    } catch (const std::bad_alloc&) {
      is_lost_ = true;
    }
  }
  void stepped() noexcept override {
    if (events_.empty() && !is_lost_) return;
    const int64_t sequence = next_++;
    try {
      const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
      const std::lock_guard lock(mutex_);
      if (!is_lost_ && queue_.size() < options_.max_queued)
        queue_.push_back({.sequence = sequence, .time = now, .events = std::move(events_)});
    } catch (const std::bad_alloc&) {  // then it is missing, as its number shows
    }
    events_ = {};
    is_lost_ = false;
    wake();
  }

 private:
  struct Payload {
    int64_t sequence = 0;
    std::string bytes;
  };

  void wake() const {
    const uint64_t one = 1;
    static_cast<void>(write(wake_, &one, sizeof one));
  }

  void run() {
    name_thread("kv-events");
    PollItem items[] = {{nullptr, wake_, kPollIn, 0}, {replay_socket_.get(), 0, kPollIn, 0}};
    const int n_items = options_.replay_endpoint.empty() ? 1 : 2;
    for (;;) {
      if (zmq()->poll(items, n_items, -1) < 0) continue;
      uint64_t n = 0;
      static_cast<void>(read(wake_, &n, sizeof n));
      std::deque<KvEventBatch> batches;
      bool is_over = false;
      {
        const std::lock_guard lock(mutex_);
        batches.swap(queue_);
        is_over = is_over_;
      }
      for (const KvEventBatch& batch : batches) send(batch);
      if (n_items > 1 && (items[1].revents & kPollIn) != 0) answer();
      if (is_over) return;
    }
  }

  void send(const KvEventBatch& batch) try {
    sent_.push_back({batch.sequence, encode_kv_events(batch, block_len_, options_.as_arrays)});
    if (sent_.size() > options_.max_replayed) sent_.pop_front();
    const std::array<char, 8> sequence = big_endian(batch.sequence);
    const std::string_view frames[] = {options_.topic, {sequence.data(), sequence.size()}, sent_.back().bytes};
    events_socket_.send(frames);
  } catch (const std::bad_alloc&) {
  }

  // [id, "", start]: all payloads from that number on, and an end of the number -1.
  void answer() try {
    std::vector<std::string> asked;
    for (int more = 1; more != 0;) {
      char frame[256];
      const int n = zmq()->recv(replay_socket_.get(), frame, sizeof frame, kDontWait);
      if (n < 0) return;
      if (asked.size() < 4) asked.emplace_back(frame, std::min(static_cast<size_t>(n), sizeof frame));
      size_t size = sizeof more;
      zmq()->getsockopt(replay_socket_.get(), kReceiveMore, &more, &size);
    }
    if (asked.size() != 3 || !asked[1].empty() || asked[2].size() != 8) return;
    uint64_t start = 0;
    for (const char c : asked[2]) start = start << 8 | static_cast<unsigned char>(c);
    for (const Payload& payload : sent_) {
      if (payload.sequence < static_cast<int64_t>(start)) continue;
      const std::array<char, 8> sequence = big_endian(payload.sequence);
      const std::string_view frames[] = {asked[0], "", options_.topic, {sequence.data(), 8}, payload.bytes};
      replay_socket_.send(frames);
    }
    const std::array<char, 8> end = big_endian(-1);
    const std::string_view frames[] = {asked[0], "", "", {end.data(), 8}, ""};
    replay_socket_.send(frames);
  } catch (const std::bad_alloc&) {
  }

  const KvEventOptions options_;
  const int32_t block_len_;
  const int wake_;
  Context context_;
  Socket events_socket_, replay_socket_;
  std::vector<KvEvent> events_;  // of this step; the engine's thread alone
  int64_t next_ = 0;
  bool is_lost_ = false;
  std::deque<Payload> sent_;  // its own thread alone
  std::mutex mutex_;
  std::deque<KvEventBatch> queue_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<KvEvents>> KvEvents::open(const KvEventOptions& options, int32_t block_len) {
  if (zmq() == nullptr)
    return unsupported("KV events need ZeroMQ, and libzmq.so.5 is not installed (Debian: libzmq5).", "--kv-events");
  auto events = std::make_unique<ZmqKvEvents>(options, block_len);
  TRY(events->start());
  return std::unique_ptr<KvEvents>(std::move(events));
}

}  // namespace ibid
