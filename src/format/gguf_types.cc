#include "format/gguf.h"

namespace ibid {
namespace {

struct GgmlType {
  uint32_t number;
  std::string_view name;
};
constexpr GgmlType kGgmlTypes[] = {
    {0, "F32"},      {1, "F16"},     {2, "Q4_0"},     {3, "Q4_1"},   {6, "Q5_0"},    {7, "Q5_1"},   {8, "Q8_0"},
    {9, "Q8_1"},     {10, "Q2_K"},   {11, "Q3_K"},    {12, "Q4_K"},  {13, "Q5_K"},   {14, "Q6_K"},  {15, "Q8_K"},
    {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},
    {23, "IQ4_XS"},  {24, "I8"},     {25, "I16"},     {26, "I32"},   {27, "I64"},    {28, "F64"},   {29, "IQ1_M"},
    {30, "BF16"},    {34, "TQ1_0"},  {35, "TQ2_0"},   {39, "MXFP4"}, {40, "NVFP4"},  {41, "Q1_0"},  {42, "Q2_0"}};

}  // namespace

int ggml_type(DType dtype) {
  for (const GgmlType& type : kGgmlTypes) {
    if (type.name == traits(dtype).name) return static_cast<int>(type.number);
  }
  return -1;
}

Result<DType> dtype_from_ggml_type(uint32_t number) {
  for (const GgmlType& type : kGgmlTypes) {
    if (type.number != number) continue;
    if (std::optional<DType> dtype = dtype_from_name(type.name)) return *dtype;
    return unsupported("its type is " + std::string(type.name) +
                       ", which files do not have: it is that of activations within a product");
  }
  return invalid("its type is number " + std::to_string(number) + ", which does not exist or is no longer in use");
}

}  // namespace ibid
