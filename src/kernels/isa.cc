#include "kernels/isa.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace ibid {
namespace {

constexpr std::array<std::string_view, 9> kNames = {"baseline",    "avx2", "avx2_vnni",    "avx512",   "avx512_vnni",
                                                    "avx512_bf16", "neon", "neon_dotprod", "neon_i8mm"};

bool cpu_has(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return true;
#if defined(__x86_64__)
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case Isa::kAvx2Vnni:
      return cpu_has(Isa::kAvx2) && __builtin_cpu_supports("avxvnni");
    case Isa::kAvx512:
      return cpu_has(Isa::kAvx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    case Isa::kAvx512Vnni:
      return cpu_has(Isa::kAvx512) && __builtin_cpu_supports("avx512vnni");
    case Isa::kAvx512Bf16:
      return cpu_has(Isa::kAvx512Vnni) && __builtin_cpu_supports("avx512bf16");
#elif defined(__aarch64__)
    case Isa::kNeon:
      return true;  // of every 64-bit ARM
    case Isa::kNeonDotprod:
      return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
    case Isa::kNeonI8mm:
      return cpu_has(Isa::kNeonDotprod) && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
#endif
    default:
      return false;
  }
}

std::atomic<Isa>& selection() {
  static std::atomic<Isa> isa{supported_isas().back()};
  return isa;
}

}  // namespace

std::string_view isa_name(Isa isa) { return kNames[static_cast<size_t>(isa)]; }

std::optional<Isa> isa_from_name(std::string_view name) {
  const auto it = std::find(kNames.begin(), kNames.end(), name);
  if (it == kNames.end()) return std::nullopt;
  return static_cast<Isa>(it - kNames.begin());
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (cpu_has(static_cast<Isa>(i))) isas.push_back(static_cast<Isa>(i));
  }
  return isas;
}

Status select_isa(Isa isa) {
  if (!cpu_has(isa)) {
    std::string have;
    for (Isa other : supported_isas()) have += (have.empty() ? "" : ", ") + std::string(isa_name(other));
    return unsupported("this processor and build cannot run the kernels \"" + std::string(isa_name(isa)) +
                           "\"; choose one of: " + have,
                       "cpu-isa");
  }
  selection().store(isa, std::memory_order_relaxed);
  return {};
}

Isa selected_isa() { return selection().load(std::memory_order_relaxed); }

}  // namespace ibid
