#include "tensor/dtype.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/check.h"

namespace ibid {
namespace {

constexpr std::array<DTypeTraits, kDTypeCount> kTraits = {{
    {"F32", 1, 4},      {"F16", 1, 2},        {"BF16", 1, 2},      {"Q4_0", 32, 18},     {"Q4_1", 32, 20},
    {"Q5_0", 32, 22},   {"Q5_1", 32, 24},     {"Q8_0", 32, 34},    {"Q2_K", 256, 84},    {"Q3_K", 256, 110},
    {"Q4_K", 256, 144}, {"Q5_K", 256, 176},   {"Q6_K", 256, 210},  {"IQ4_NL", 32, 18},   {"IQ4_XS", 256, 136},
    {"MXFP4", 32, 17},  {"IQ1_S", 256, 50},   {"IQ1_M", 256, 56},  {"IQ2_XXS", 256, 66}, {"IQ2_XS", 256, 74},
    {"IQ2_S", 256, 82}, {"IQ3_XXS", 256, 98}, {"IQ3_S", 256, 110}, {"TQ1_0", 256, 54},   {"TQ2_0", 256, 66},
    {"NVFP4", 64, 36},  {"Q1_0", 128, 18},    {"Q2_0", 64, 18},    {"I8", 1, 1},         {"I16", 1, 2},
    {"I32", 1, 4},      {"I64", 1, 8},        {"F64", 1, 8},
}};

}  // namespace

const DTypeTraits& traits(DType dtype) { return kTraits[static_cast<size_t>(dtype)]; }

std::optional<DType> dtype_from_name(std::string_view name) {
  auto same = [](char a, char b) { return std::toupper(static_cast<unsigned char>(a)) == b; };
  for (int i = 0; i < kDTypeCount; ++i) {
    std::string_view candidate = kTraits[static_cast<size_t>(i)].name;
    if (std::equal(name.begin(), name.end(), candidate.begin(), candidate.end(), same)) return static_cast<DType>(i);
  }
  return std::nullopt;
}

int64_t row_bytes(DType dtype, int64_t len) {
  const DTypeTraits& t = traits(dtype);
  DCHECK(len % t.block_len == 0, "a row of a quantised tensor is a whole number of blocks");
  return len / t.block_len * t.block_bytes;
}

}  // namespace ibid
