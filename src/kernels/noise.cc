#include "kernels/noise.h"

#include "base/check.h"
#include "kernels/cpu/noise_table.h"
#include "kernels/cpu/table.h"

namespace ibid {

void fill_noise(std::span<uint32_t> out, uint64_t seed, int32_t position, uint32_t purpose) {
  CHECK(out.size() % 4 == 0);
  cpu::table().noise->fill(out.data(), static_cast<int64_t>(out.size() / 4), seed, static_cast<uint32_t>(position),
                           purpose);
}

}  // namespace ibid
