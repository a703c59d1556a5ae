#include "kernels/weight.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "base/check.h"
#include "kernels/linear.h"

namespace ibid {
namespace {

// Weights lie in large memory pages where the system has them: fewer look-ups of addresses while streaming.
constexpr size_t kLargePage = size_t{2} << 20;
// Those that are smaller share memory of so many bytes, of which a page that nothing lies in is never touched.
constexpr size_t kSharedBytes = 16 * kLargePage;

std::shared_ptr<std::byte[]> allocate_large(size_t bytes) {
  const std::align_val_t alignment{kLargePage};
  auto* p = static_cast<std::byte*>(::operator new[](bytes, alignment));
  madvise(p, bytes / kLargePage * kLargePage, MADV_HUGEPAGE);  // a wish: failure is harmless
  return {p, [alignment](std::byte* q) { ::operator delete[](q, alignment); }};
}

// From any thread. What weights share is given back with the last of them.
std::shared_ptr<std::byte[]> allocate(size_t bytes) {
  if (bytes >= kLargePage) return allocate_large(bytes);
  static std::mutex mutex;
  static std::weak_ptr<std::byte[]> latest;
  static size_t n_used = 0;
  const std::lock_guard lock(mutex);
  std::shared_ptr<std::byte[]> shared = latest.lock();
  if (shared == nullptr || n_used + bytes > kSharedBytes) {
    latest = shared = allocate_large(kSharedBytes);
    n_used = 0;
  }
  std::byte* const p = shared.get() + n_used;
  n_used += (bytes + 63) / 64 * 64;
  return {std::move(shared), p};
}

int64_t n_matrices(const TensorView& raw) { return raw.rank == 3 ? raw.dim[0] : 1; }
int64_t tiles_of_matrix(const TensorView& raw) {
  return (raw.dim[static_cast<size_t>(raw.rank - 2)] + cpu::kTileOutputs - 1) / cpu::kTileOutputs;
}

// The packed form of all of `raw`, by the stream's team.
std::shared_ptr<std::byte[]> packed_of(Stream& s, const TensorView& raw) {
  const std::shared_ptr<std::byte[]> to = allocate(static_cast<size_t>(prepared_bytes(s, raw)));
  const int64_t tile_bytes = packed_tile_bytes(raw.dtype, raw.row_len());
  s.team().parallel_for(n_matrices(raw) * tiles_of_matrix(raw),
                        [&](int64_t tile, int) { pack_tile(raw, tile, to.get() + tile * tile_bytes); });
  return to;
}

// All but the packed form.
Weight unpacked_weight(const Stream& s, const TensorView& raw, const KPieces& pieces) {
  CHECK(raw.rank == 2, "a weight is a matrix");
  Weight w;
  w.dtype = raw.dtype;
  w.n_outputs = raw.dim[0];
  w.n_inputs = raw.dim[1];
  w.pieces = pieces;
  w.raw = raw;
  CHECK(w.n_inputs % traits(w.dtype).block_len == 0, "a row of a quantised weight is a whole number of blocks");
  const int64_t step = std::max(32, traits(w.dtype).block_len);
  for (int i = 0; i < pieces.n; ++i) {
    const int64_t edge = pieces.edges[static_cast<size_t>(i)];
    CHECK(edge % step == 0 && edge < pieces.edges[static_cast<size_t>(i) + 1], "pieces begin with a block, in order");
  }
  CHECK(pieces.edges[static_cast<size_t>(pieces.n)] == w.n_inputs, "pieces are of this weight's inputs");
  CHECK(weight_supported(s, w.dtype).ok(), "a weight that the device cannot multiply is refused at load");
  return w;
}

}  // namespace

Status weight_supported(const Stream& s, DType dtype) {
  if (s.device() == Device::kCpu) return {};
  return unsupported(std::string(device_name(s.device())) + " has no product for weights of type " +
                     std::string(traits(dtype).name) + "; run the model on the CPU");
}

int64_t prepared_bytes(const Stream& s, const TensorView& raw) {
  if (s.device() != Device::kCpu) return 0;
  return n_matrices(raw) * tiles_of_matrix(raw) * packed_tile_bytes(raw.dtype, raw.row_len());
}

void pack_tile(const TensorView& raw, int64_t tile, std::byte* to) {
  const int64_t n = tiles_of_matrix(raw);
  const TensorView matrix = raw.rank == 3 ? raw.matrix(tile / n) : raw;
  pack_tile(raw.dtype, matrix.data, raw.row_stride_bytes, matrix.dim[0], raw.row_len(), tile % n, to);
}

Weight prepare_weight(Stream& s, const TensorView& raw) {
  CHECK(raw.rank == 2, "a weight is a matrix");
  return prepare_weight(s, raw, one_piece(raw.dim[1]));
}

Weight prepare_weight(Stream& s, const TensorView& raw, const KPieces& pieces) {
  Weight w = unpacked_weight(s, raw, pieces);
  if (s.device() != Device::kCpu) return w;
  w.packed_bytes = prepared_bytes(s, raw);
  w.owned = packed_of(s, raw);
  w.packed = w.owned.get();
  return w;
}

Weight weight_of_packed(const Stream& s, const TensorView& raw, const KPieces& pieces,
                        std::span<const std::byte> packed) {
  Weight w = unpacked_weight(s, raw, pieces);
  CHECK(static_cast<int64_t>(packed.size()) == prepared_bytes(s, raw), "the packed form of this weight");
  CHECK(reinterpret_cast<uintptr_t>(packed.data()) % 64 == 0, "kernels read whole cache lines");
  w.packed = packed.data();
  w.packed_bytes = static_cast<int64_t>(packed.size());
  return w;
}

std::vector<Weight> prepare_weights(Stream& s, const TensorView& raw, const KPieces& pieces) {
  CHECK(raw.rank == 3, "matrices one after the other");
  if (s.device() != Device::kCpu) return weights_of_packed(s, raw, pieces, {});
  const std::shared_ptr<std::byte[]> owned = packed_of(s, raw);
  std::vector<Weight> all =
      weights_of_packed(s, raw, pieces, {owned.get(), static_cast<size_t>(prepared_bytes(s, raw))});
  for (Weight& w : all) w.owned = owned;
  return all;
}

std::vector<Weight> weights_of_packed(const Stream& s, const TensorView& raw, const KPieces& pieces,
                                      std::span<const std::byte> packed) {
  CHECK(raw.rank == 3 && static_cast<int64_t>(packed.size()) == prepared_bytes(s, raw), "the packed form of these");
  const size_t n_bytes = packed.size() / static_cast<size_t>(raw.dim[0]);
  std::vector<Weight> all;
  for (int64_t i = 0; i < raw.dim[0]; ++i) {
    all.push_back(packed.empty() ? unpacked_weight(s, raw.matrix(i), pieces)
                                 : weight_of_packed(s, raw.matrix(i), pieces,
                                                    packed.subspan(static_cast<size_t>(i) * n_bytes, n_bytes)));
  }
  return all;
}

}  // namespace ibid
