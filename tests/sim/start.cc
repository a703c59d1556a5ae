#include "sim/start.h"

#include <utility>

#include "sim/solo.h"

namespace ibid::sim {
namespace {

constexpr PolicyKind kPolicies[] = {PolicyKind::kPriority, PolicyKind::kFirstCome, PolicyKind::kFair};

}  // namespace

Result<std::unique_ptr<Engine>> start(const World& world, int64_t n_starts, Witness& witness, Stream& stream,
                                      const Clock& clock, std::shared_ptr<testing::FakeMedium> medium,
                                      Recorder* recorder) {
  const auto as_int = [](int64_t n) { return static_cast<int32_t>(n); };
  auto model = std::make_unique<CellModel>(as_int(world.context_len), as_int(world.window), witness);
  EngineOptions options;
  options.block_len = as_int(world.block_len);
  options.kv_dtype = DType::kF32;
  options.kv_bytes = world.n_blocks * KvStore::block_bytes(model->facts(), options.kv_dtype, options.block_len);
  options.step_tokens = as_int(world.step_tokens);
  options.max_sequences = as_int(world.max_sequences);
  options.max_rows = as_int(world.max_rows);
  options.max_waiting = as_int(world.max_waiting);
  options.prefix_cache = world.prefix_cache != 0;
  options.policy = kPolicies[static_cast<size_t>(world.policy) % std::size(kPolicies)];
  options.max_itl = 1e-3 * static_cast<double>(world.max_itl);
  options.host_bytes = world.host_blocks * KvStore::block_bytes(model->facts(), options.kv_dtype, options.block_len);
  options.host_copy_seconds = 1e-3 * static_cast<double>(world.seed % 4);  // 0 in some: always worth it
  std::unique_ptr<DurableStore> store;
  if (world.disk_blocks > 0) {
    const BlockFormat format = {.block_len = options.block_len, .payload_bytes = options.kv_bytes / world.n_blocks};
    options.disk_bytes = world.disk_blocks * format.image_bytes();
    options.model_digest = "cells";
    const uint64_t seed = mix(static_cast<uint64_t>(world.seed), static_cast<uint64_t>(n_starts));
    store = std::make_unique<testing::FakeDisk>(
        std::move(medium), format,
        testing::FakeDiskScript{
            .seed = seed, .most_idle = as_int(world.disk_idle), .fault_one_in = as_int(world.disk_faults)});
  }
  if (recorder != nullptr && store != nullptr) store = recorder->recording(std::move(store));
  ASSIGN_OR_RETURN(
      auto engine,
      Engine::create(std::move(model), spelled_tokens(), stream, options,
                     recorder != nullptr ? recorder->clock() : clock,
                     PrefixHash(as_int(world.hash_bits), static_cast<uint64_t>(world.seed) + 1), std::move(store)));
  if (recorder != nullptr) recorder->begin(*engine, "cells", 1);
  return engine;
}

}  // namespace ibid::sim
