// The cost of eight pieces of K relative to one (docs/decisions/0008-pieces-of-k.md), dtype by dtype.
//
//   pieces_bench [DTYPE ...]        e.g. pieces_bench Q4_1 Q4_K F16; IBID_CPU_ISA=avx2 chooses the kernels
//
// A number is the median, with its quartiles, of the ratios of neighbouring runs: the same weights in eight pieces and
// in one, a few milliseconds each, in turn. Times are one thread's processor time, so that a busy machine widens the
// quartiles and leaves the median. Few rows cycle through more weights than the caches hold, as a model's layers do.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "kernels/isa.h"
#include "kernels/ops.h"

namespace ibid {
namespace {

constexpr int64_t kN = 512;
constexpr int64_t kLengths[] = {2048, 5632, 14336};
constexpr int64_t kRows[] = {1, 4, 32};
constexpr int64_t kWeightsBytes = int64_t{48} << 20;
constexpr double kRunSeconds = 0.003;
constexpr int kPairs = 51;

double processor_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

class Product {
 public:
  Product(Stream& s, const TensorView& raw, int64_t T)
      : s_(s), T_(T), x_(static_cast<size_t>(T * raw.dim[1])), out_(static_cast<size_t>(T * raw.dim[0])) {
    weights_.push_back(prepare_weight(s, raw));
    const int64_t n = T <= 4 ? kWeightsBytes / weights_[0].packed_bytes : 0;
    while (static_cast<int64_t>(weights_.size()) < n) weights_.push_back(prepare_weight(s, raw));
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = static_cast<float>(i % 17) - 8.0f;
    CHECK(s.reserve_workspace(ops::linear_workspace_bytes(T, raw.dim[1])).ok());
  }
  // Seconds a call. The packed form does not depend on pieces, so both kinds read the very same memory: two copies may
  // differ by more in where they lie than in their pieces.
  double run(const KPieces& pieces, int64_t n_calls) {
    for (Weight& w : weights_) w.pieces = pieces;
    const TensorView x(x_.data(), DType::kF32, {T_, weights_[0].n_inputs}), out(out_.data(), DType::kF32, {T_, kN});
    const double begin = processor_seconds();
    for (int64_t i = 0; i < n_calls; ++i) {
      const Weight* w = &weights_[next_++ % weights_.size()];
      ops::linear(s_, {&out, 1}, x, {&w, 1});
    }
    return (processor_seconds() - begin) / static_cast<double>(n_calls);
  }

 private:
  Stream& s_;
  int64_t T_;
  std::vector<Weight> weights_;
  std::vector<float> x_, out_;
  size_t next_ = 0;
};

// First quartile, median, third quartile.
std::array<double, 3> ratios(Stream& s, DType dtype, int64_t K, int64_t T) {
  std::vector<std::byte> bytes(static_cast<size_t>(kN * row_bytes(dtype, K)), std::byte{0x11});
  const TensorView raw(bytes.data(), dtype, {kN, K});
  const KPieces eight = pieces_of(dtype, K), one = one_piece(K);
  Product product(s, raw, T);
  const double call = std::min(product.run(eight, 3), product.run(one, 3));
  const auto n_calls = std::max<int64_t>(1, static_cast<int64_t>(kRunSeconds / call));
  std::vector<double> found;
  for (int pair = 0; pair < kPairs; ++pair) {
    const bool eight_first = pair % 2 == 0;
    const double first = product.run(eight_first ? eight : one, n_calls);
    const double second = product.run(eight_first ? one : eight, n_calls);
    found.push_back(eight_first ? first / second : second / first);
  }
  std::sort(found.begin(), found.end());
  return {found[kPairs / 4], found[kPairs / 2], found[3 * kPairs / 4]};
}

int run(int argc, char** argv) {
  if (const char* name = std::getenv("IBID_CPU_ISA")) {
    const auto isa = isa_from_name(name);
    if (!isa || !select_isa(*isa).ok()) {
      std::fprintf(stderr, "pieces_bench: no kernels for IBID_CPU_ISA=%s here\n", name);
      return 1;
    }
  }
  ThreadTeam team(1);
  Stream s(team);
  std::vector<DType> dtypes;
  for (int i = 1; i < argc; ++i) {
    if (const auto dtype = dtype_from_name(argv[i])) dtypes.push_back(*dtype);
  }
  if (dtypes.empty()) dtypes = {DType::kQ4_1, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K, DType::kF16, DType::kBF16};
  std::printf("time of 8 pieces of K / time of 1, %s kernels, N %ld\n%-8s %6s",
              std::string(isa_name(selected_isa())).c_str(), static_cast<long>(kN), "dtype", "K");
  for (int64_t T : kRows) std::printf("  %20ld rows", static_cast<long>(T));
  std::printf("\n");
  for (DType dtype : dtypes) {
    for (int64_t K : kLengths) {
      std::printf("%-8s %6ld", std::string(traits(dtype).name).c_str(), static_cast<long>(K));
      for (int64_t T : kRows) {
        const auto [low, median, high] = ratios(s, dtype, K, T);
        std::printf("    %.3f (%.3f to %.3f)", median, low, high);
        std::fflush(stdout);
      }
      std::printf("\n");
    }
  }
  return 0;
}

}  // namespace
}  // namespace ibid

int main(int argc, char** argv) { return ibid::run(argc, argv); }
