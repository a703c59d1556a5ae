// An engine over a device whose memory the host cannot read: its pages are protected except while the model runs and
// while the stream copies to the host. A direct read by the host ends the test with a fault.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "fake_model.h"

namespace ibid {
namespace {

constexpr int32_t kContextLen = 96, kWidth = 16;

std::map<std::byte*, size_t> regions;
int n_open = 0;

size_t whole_pages(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

std::byte* take_region(size_t bytes) {
  void* p = mmap(nullptr, whole_pages(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  regions[static_cast<std::byte*>(p)] = whole_pages(bytes);
  return static_cast<std::byte*>(p);
}
void release_region(std::byte* p, size_t bytes) {
  regions.erase(p);
  munmap(p, whole_pages(bytes));
}

// While it lives, the device's memory may be read and written: on the device.
struct OnDevice {
  OnDevice() {
    if (n_open++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  ~OnDevice() {
    if (--n_open == 0) protect(PROT_NONE);
  }
  OnDevice(const OnDevice&) = delete;
  static void protect(int how) {
    for (const auto& [p, bytes] : regions) mprotect(p, bytes, how);
  }
};

void copy_out(void*, const std::byte* from, std::byte* to, size_t bytes) {
  const OnDevice on;
  std::memcpy(to, from, bytes);
}

class OnProtectedMemory final : public ForwardPass {
 public:
  explicit OnProtectedMemory(std::vector<std::string>& faults) : faults_(faults) {}
  const ModelFacts& facts() const override { return fake_.facts(); }
  void run(const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    const OnDevice on;
    fake_.run(batch, kv, logits, hidden);
    faults_ = fake_.faults();
  }

 private:
  testing::FakeModel fake_{kContextLen, 0, kWidth};
  std::vector<std::string>& faults_;
};

std::vector<Request> requests() {
  std::vector<Request> out;
  for (uint64_t id = 1; id <= 8; ++id) {
    Request r;
    r.id = RequestId{id};
    for (uint64_t i = 0; i < 3 + id * 7; ++i)
      r.prompt.push_back(TokenId{1 + static_cast<int32_t>(testing::mix(id, i) % 60)});
    r.max_tokens = id % 4 == 0 ? 0 : 20;
    if (id % 4 == 0) r.pooling = Pooling::kMean;
    r.sampling.seed = id;
    r.sampling.temperature = id % 2 == 0 ? 0.0f : 0.9f;
    out.push_back(std::move(r));
  }
  return out;
}

struct Answered {
  std::vector<TokenId> tokens;
  std::vector<float> embedding;
  FinishReason reason = FinishReason::kNone;
};

std::map<RequestId, Answered> answers(Stream& stream, std::vector<std::string>& faults) {
  ManualClock clock;
  auto model = std::make_unique<OnProtectedMemory>(faults);
  EngineOptions options{.kv_dtype = DType::kF32, .step_tokens = 16, .max_sequences = 4};
  options.prefix_cache = false;
  options.max_drafts = 4;
  options.kv_bytes = 64 * KvStore::block_bytes(model->facts(), options.kv_dtype, options.block_len);
  auto engine = Engine::create(std::move(model), nullptr, stream, options, clock).value();
  for (Request& r : requests()) {
    EXPECT_TRUE(engine->submit(std::move(r)).ok());
  }
  std::vector<Output> out;
  while (engine->step(out)) {
  }
  std::map<RequestId, Answered> all;
  for (const Output& o : out) {
    Answered& answered = all[o.request];
    for (const TokenRecord& t : o.tokens) answered.tokens.push_back(t.chosen.token);
    if (!o.finished) continue;
    answered.reason = o.reason;
    if (o.ending) answered.embedding = o.ending->embedding;
  }
  return all;
}

TEST(DeviceStream, AnEngineOverItAnswersAsOverTheCpuAndReadsNoneOfItsMemory) {
  ThreadTeam team(2);
  Stream cpu(team);
  Stream device(Device::kCuda, nullptr, {.allocate = take_region, .release = release_region, .to_host = copy_out},
                team);
  std::vector<std::string> faults;
  const auto on_cpu = answers(cpu, faults), on_device = answers(device, faults);
  EXPECT_TRUE(faults.empty());
  EXPECT_TRUE(regions.empty()) << "all of it is given back";
  ASSERT_EQ(on_device.size(), 8u);
  for (const Request& r : requests()) {
    const Answered &is = on_device.at(r.id), &was = on_cpu.at(r.id);
    EXPECT_EQ(is.tokens, was.tokens);
    EXPECT_EQ(is.embedding, was.embedding);
    EXPECT_EQ(is.reason, was.reason);
    if (r.pooling == Pooling::kNone) {
      EXPECT_EQ(is.tokens, testing::expected_answer(r, 0, kContextLen).tokens);
    } else {
      EXPECT_EQ(is.embedding.size(), static_cast<size_t>(kWidth));
    }
  }
}

}  // namespace
}  // namespace ibid
