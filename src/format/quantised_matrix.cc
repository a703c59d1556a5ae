#include "format/quantised_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/quoted.h"
#include "tensor/block_formats.h"
#include "tensor/dequantise.h"
#include "tensor/float8.h"
#include "tensor/half.h"

namespace ibid {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr int64_t kBlock = 32;
// The values of E2M1 by code.
constexpr float kE2M1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                             -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
// Of bitsandbytes, as bits of floats (functional.py): quantiles of a normal distribution; powers of two and their
// halves more, over 12.
constexpr uint32_t kNF4[16] = {0xbf800000, 0xbf3239b1, 0xbf066b30, 0xbeca32a0, 0xbe91a24d, 0xbe3d353f,
                               0xbdba7871, 0x00000000, 0x3da2faff, 0x3e24cae3, 0x3e7c04dd, 0x3ead033a,
                               0x3ee1a4b8, 0x3f1007ab, 0x3f3913b3, 0x3f800000};
constexpr uint32_t kFP4[8] = {0, 0x3baaaaab, 0x3f2aaaab, 0x3f800000, 0x3eaaaaab, 0x3f000000, 0x3e2aaaab, 0x3e800000};
constexpr float k127th = 7.874015718698502e-3f;  // of bitsandbytes' rows of bytes

int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

bool is_float(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32; }
bool is_float8(const TensorInfo& info) {
  return info.view.dtype == DType::kI8 && (info.eight_bits == EightBits::kE4M3 || info.eight_bits == EightBits::kE5M2);
}
// A folder's U8 or F8_E8M0.
bool is_exponent(const TensorInfo& info) {
  return info.view.dtype == DType::kI8 &&
         (info.eight_bits == EightBits::kE8M0 || info.eight_bits == EightBits::kInteger);
}

const TensorInfo* find_beside(const ModelFile& file, std::string_view base, std::string_view end) {
  return file.find(std::string(base) + std::string(end));
}

// Element i of a contiguous tensor of floats, or of bytes that are `of_bytes`.
float element(const TensorView& view, int64_t i, EightBits of_bytes = EightBits::kE8M0) {
  if (view.dtype == DType::kI8) return to_float(of_bytes, static_cast<uint8_t>(view.data[i]));
  float value;
  dequantise_row(view.dtype, view.data + i * traits(view.dtype).block_bytes, &value, 1);
  return value;
}

// To F16 or BF16, and back.
uint16_t rounded(DType dtype, float value) {
  return dtype == DType::kF16 ? float_to_half(value) : float_to_bf16(value);
}
float widened(DType dtype, uint16_t bits) { return dtype == DType::kF16 ? half_to_float(bits) : bf16_to_float(bits); }

bool is_half(float value) { return std::isnan(value) || half_to_float(float_to_half(value)) == value; }

bool all_are_halves(const TensorView& view) {
  if (view.dtype == DType::kF16) return true;
  for (int64_t i = 0; i < view.n_elements(); ++i) {
    if (!is_half(element(view, i))) return false;
  }
  return true;
}

template <typename T>
T number_at(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// Where output i of eight lies in a word of AWQ, in codes.
constexpr int kPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};

uint32_t word_at(const uint8_t* data, int64_t i) {
  return number_at<uint32_t>(reinterpret_cast<const std::byte*>(data), i);
}

// Whole codes of kBits in words that lie `step` apart.
template <int kBits>
void take_words(const uint8_t* data, int64_t first, int64_t step, int64_t n, int32_t* to) {
  constexpr int kPerWord = 32 / kBits;
  constexpr uint32_t kMask = (1u << kBits) - 1;
  for (int64_t i = 0; i < n; i += kPerWord) {
    const uint32_t word = word_at(data, first + i / kPerWord * step);
    const auto n_here = static_cast<int>(std::min<int64_t>(kPerWord, n - i));
    for (int c = 0; c < n_here; ++c) to[i + c] = static_cast<int32_t>(word >> (c * kBits) & kMask);
  }
}

}  // namespace

int32_t QuantisedMatrix::Codes::at(int64_t line, int64_t i) const {
  const auto word = [&](int64_t w) { return word_at(data, w * step + line * line_step) + word_add; };
  if (is_int8) return static_cast<int8_t>(data[line * line_step + i * step]);
  const uint32_t mask = (1u << bits) - 1;
  if (is_awq) {
    return static_cast<int32_t>(word(i / 8) >> (4 * kPlaces[i % 8]) & mask);
  }
  if (per_word != 0) return static_cast<int32_t>(word(i / per_word) >> (i % per_word * bits) & mask);
  const int64_t bit = i * bits, shift = bit % 32;
  uint64_t both = word(bit / 32);
  if (shift + bits > 32) both |= static_cast<uint64_t>(word(bit / 32 + 1)) << 32;
  return static_cast<int32_t>(both >> shift & mask);
}

void QuantisedMatrix::Codes::take_line(int64_t line, int64_t n, int32_t* to) const {
  const int64_t first = line * line_step;
  if (is_int8) {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<int8_t>(data[first + i * step]);
  } else if (bits == 4) {
    take_words<4>(data, first, step, n, to);
  } else if (bits == 8) {
    take_words<8>(data, first, step, n, to);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = at(line, i);
  }
}

void QuantisedMatrix::Codes::take_column(int64_t i, int64_t n_lines, int32_t* to) const {
  const int shift = 4 * kPlaces[i % 8];
  for (int64_t line = 0; line < n_lines; ++line)
    to[line] = static_cast<int32_t>(word_at(data, i / 8 + line * line_step) >> shift & 15);
}

// Finds and checks the tensors of one matrix.
class QuantisedMatrix::Finder {
 public:
  Finder(const ModelFile& file, const QuantRecipe& recipe, std::string_view name, QuantisedMatrix& to)
      : file_(file), recipe_(recipe), base_(name.substr(0, name.size() - kWeight.size())), to_(to) {}

  Status find() {
    for (const std::string_view end :
         {".input_scale", ".input_scale_ub", ".input_zero_point", ".input_global_scale", ".weight_shape"})
      take(end);
    if (const TensorInfo* shape = find_beside(file_, base_, ".weight_shape"); shape != nullptr) {
      const TensorView& v = shape->view;
      const bool fits = v.n_elements() == 2 && v.dtype == DType::kI64 && number_at<int64_t>(v.data, 0) == N() &&
                        number_at<int64_t>(v.data, 1) == K();
      if (!fits) return bad(*shape, "does not give the model's sizes " + sizes());
    }
    switch (recipe_.method) {
      case QuantMethod::kGptq:
        return gptq();
      case QuantMethod::kAwq:
        return awq();
      case QuantMethod::kMlx:
        return mlx();
      case QuantMethod::kBitsAndBytes:
        return find_beside(file_, base_, ".SCB") != nullptr ? scb() : table();
      default:
        break;
    }
    if (const TensorInfo* packed = find_beside(file_, base_, ".weight_packed"); packed != nullptr) {
      if (packed->view.dtype != DType::kI8) return packed_integers();
      return find_beside(file_, base_, ".weight_global_scale") != nullptr ? nvfp4(".weight_packed", true) : mxfp4();
    }
    if (find_beside(file_, base_, ".weight_scale_2") != nullptr && is_of_bytes(".weight"))
      return nvfp4(".weight", false);
    return is_of_bytes(".weight") ? integer_bytes() : float8();
  }

 private:
  int64_t N() const { return to_.n_outputs_; }
  int64_t K() const { return to_.n_inputs_; }
  std::string sizes() const { return "[" + std::to_string(N()) + ", " + std::to_string(K()) + "]"; }
  bool is_of_bytes(std::string_view end) const {
    const TensorInfo* info = find_beside(file_, base_, end);
    return info != nullptr && info->view.dtype == DType::kI8 && !is_float8(*info);
  }

  Error bad(const TensorInfo& info, const std::string& what) const {
    std::string shape;
    for (int i = 0; i < info.view.rank; ++i)
      shape += (i > 0 ? ", " : "") + std::to_string(info.view.dim[static_cast<size_t>(i)]);
    return invalid(file_.path() + ": tensor " + in_quotes(info.name) + ", " +
                       std::string(traits(info.view.dtype).name) + " [" + shape + "], " + what,
                   info.name);
  }
  // Null where there is none.
  const TensorInfo* take(std::string_view end) {
    const TensorInfo* info = find_beside(file_, base_, end);
    if (info != nullptr) to_.tensors_.push_back(info);
    return info;
  }
  Result<const TensorInfo*> need(std::string_view end) {
    const TensorInfo* info = take(end);
    if (info != nullptr) return info;
    return invalid(file_.path() + " has no tensor " + in_quotes(base_ + std::string(end)) +
                       ", which a quantised matrix needs; the folder is incomplete or its recipe is wrong",
                   base_ + std::string(end));
  }
  Result<TensorView> need(std::string_view end, DType dtype, std::initializer_list<int64_t> dims) {
    ASSIGN_OR_RETURN(const TensorInfo* info, need(end));
    const TensorView& v = info->view;
    const bool fits = v.dtype == dtype && v.rank == static_cast<int>(dims.size()) &&
                      std::equal(dims.begin(), dims.end(), v.dim.begin());
    if (fits) return v;
    std::string shape;
    for (const int64_t d : dims) shape += (shape.empty() ? "" : ", ") + std::to_string(d);
    return bad(*info, "should be " + std::string(traits(dtype).name) + " [" + shape + "] for a matrix " + sizes());
  }
  Result<float> need_number(std::string_view end) {
    ASSIGN_OR_RETURN(const TensorInfo* info, need(end));
    if (info->view.n_elements() != 1 || !is_float(info->view.dtype)) return bad(*info, "should be one number");
    return element(info->view, 0);
  }

  // Of G groups in K inputs.
  Status set_group_len(int64_t n_groups, const TensorInfo& scales) {
    const int64_t K = this->K();
    if (n_groups == 1) {
      to_.group_len_ = K;
      return {};
    }
    for (const int64_t len : recipe_.group_lens) {
      if (len > 0 && ceil_div(K, len) == n_groups) {
        to_.group_len_ = len;
        return {};
      }
    }
    const bool is_stated = !recipe_.group_lens.empty() || recipe_.method == QuantMethod::kCompressed;
    if (n_groups < 1 || K % n_groups != 0 || is_stated) {
      return bad(scales, "has " + std::to_string(n_groups) + " groups for " + std::to_string(K) + " inputs");
    }
    to_.group_len_ = K / n_groups;
    return {};
  }
  // Groups of inputs by a list; one that only counts up in equal steps is none.
  Status set_order(const TensorInfo& order, int64_t n_groups) {
    if (order.view.dtype != DType::kI32 || order.view.rank != 1 || order.view.row_len() != K()) {
      return bad(order, "should be I32 [" + std::to_string(K()) + "]");
    }
    std::vector<int32_t> groups(static_cast<size_t>(K()));
    for (int64_t k = 0; k < K(); ++k) {
      const auto group = number_at<int32_t>(order.view.data, k);
      if (group < 0 || group >= n_groups) {
        return bad(order, "gives input " + std::to_string(k) + " group " + std::to_string(group) + " of " +
                              std::to_string(n_groups));
      }
      groups[static_cast<size_t>(k)] = group;
    }
    to_.group_of_ = std::move(groups);
    return {};
  }
  Status expect_float_scales(const TensorInfo& scales) const {
    if (is_float(scales.view.dtype)) return {};
    return bad(scales, "should be of F16, BF16 or F32");
  }

  // The type of rows of integers, from `least` to `most`.
  void set_integer_rows(int64_t least, int64_t most) {
    QuantisedMatrix& m = to_;
    bool in_blocks = K() % kBlock == 0 && (!m.group_of_.empty() || m.group_len_ % kBlock == 0);
    for (int64_t k = 0; in_blocks && k < static_cast<int64_t>(m.group_of_.size()); ++k) {
      const auto i = static_cast<size_t>(k);
      in_blocks = m.group_of_[i] == m.group_of_[i / kBlock * kBlock];
    }
    m.kind_ = Kind::kIntegers;
    m.dtype_ = m.scales_.dtype;
    if (!in_blocks || !all_are_halves(m.scales_)) return;
    if (least >= -8 && most <= 7) {
      m.dtype_ = DType::kQ4_0;
    } else if (least >= -16 && most <= 15) {
      m.dtype_ = DType::kQ5_0;
    } else if (least >= -128 && most <= 127) {
      m.dtype_ = DType::kQ8_0;
    }
  }

  Status gptq() {
    ASSIGN_OR_RETURN(const TensorInfo* words, need(".qweight"));
    ASSIGN_OR_RETURN(const TensorInfo* scales, need(".scales"));
    const TensorView& w = words->view;
    int bits = 0;
    for (const int b : {2, 3, 4, 8}) {
      if (K() * b % 32 == 0 && w.rank == 2 && w.dim[0] == K() * b / 32) bits = b;
    }
    if (bits == 0 || w.dtype != DType::kI32 || w.dim[1] != N()) {
      return bad(*words, "is no matrix " + sizes() + " of codes of 2, 3, 4 or 8 bits in words of its inputs");
    }
    to_.codes_ = {.data = bytes(w), .bits = bits, .step = N(), .line_step = 1};
    TRY(set_scales_by_group(*scales));
    const int64_t n_groups = scales->view.dim[0];
    TRY(set_group_len(n_groups, *scales));
    if (const TensorInfo* order = take(".g_idx"); order != nullptr) TRY(set_order(*order, n_groups));
    return set_zeros(bits, n_groups, false);
  }

  // scales[G, N].
  Status set_scales_by_group(const TensorInfo& scales) {
    TRY(expect_float_scales(scales));
    if (scales.view.rank != 2 || scales.view.dim[1] != N()) {
      return bad(scales, "should have a row of " + std::to_string(N()) + " scales for each group");
    }
    to_.scales_ = scales.view;
    to_.scale_row_ = 1;
    to_.scale_group_ = N();
    return {};
  }
  // qzeros[G, N bits / 32] of GPTQ and AWQ.
  Status set_zeros(int bits, int64_t n_groups, bool is_awq) {
    const int32_t most = (1 << bits) - 1;
    if (recipe_.symmetric) {
      take(".qzeros");
      to_.zero_ = 1 << (bits - 1);
      set_integer_rows(-to_.zero_, most - to_.zero_);
      return {};
    }
    const int64_t n_words = ceil_div(N() * bits, 32);
    ASSIGN_OR_RETURN(const TensorView zeros, need(".qzeros", DType::kI32, {n_groups, n_words}));
    to_.zeros_ = {.data = bytes(zeros), .bits = bits, .line_step = n_words, .is_awq = is_awq};
    // Version 1: writers of two, four and eight bits take one from each zero of a word at once, with borrows.
    const bool is_of_words = 32 % bits == 0;
    to_.zeros_.word_add = recipe_.zeros_are_less_1 && is_of_words ? ~0u / static_cast<uint32_t>(most) : 0;
    to_.zero_step_ = recipe_.zeros_are_less_1 && !is_of_words ? 1 : 0;
    set_integer_rows(-most - to_.zero_step_, most - to_.zero_step_);
    return {};
  }

  Status awq() {
    if (N() % 8 != 0) {
      return invalid(file_.path() + ": " + in_quotes(base_) + " has " + std::to_string(N()) +
                         " outputs, and AWQ's words hold eight",
                     base_);
    }
    ASSIGN_OR_RETURN(const TensorView words, need(".qweight", DType::kI32, {K(), N() / 8}));
    ASSIGN_OR_RETURN(const TensorInfo* scales, need(".scales"));
    to_.codes_ = {.data = bytes(words), .bits = 4, .line_step = N() / 8, .is_awq = true};
    to_.codes_are_columns_ = true;
    TRY(set_scales_by_group(*scales));
    TRY(set_group_len(scales->view.dim[0], *scales));
    return set_zeros(4, scales->view.dim[0], true);
  }

  // weight_scale[N, G], [N] or of one number.
  Status set_scales_by_row(const TensorInfo& scales, int64_t& n_groups) {
    TRY(expect_float_scales(scales));
    const TensorView& v = scales.view;
    const bool is_one = v.n_elements() == 1;
    n_groups = v.rank == 2 && !is_one ? v.dim[1] : 1;
    if (!is_one && (v.rank > 2 || v.dim[0] != N())) {
      return bad(scales, "should have scales for each of " + std::to_string(N()) + " rows");
    }
    to_.scales_ = v;
    to_.scale_row_ = is_one ? 0 : n_groups;
    to_.scale_group_ = is_one ? 0 : 1;
    return set_group_len(n_groups, scales);
  }

  Status packed_integers() {
    ASSIGN_OR_RETURN(const TensorInfo* words, need(".weight_packed"));
    ASSIGN_OR_RETURN(const TensorInfo* scales, need(".weight_scale"));
    TRY(set_words_of_rows(*words));
    const int bits = to_.codes_.bits;
    int64_t n_groups = 1;
    TRY(set_scales_by_row(*scales, n_groups));
    if (const TensorInfo* order = take(".weight_g_idx"); order != nullptr) TRY(set_order(*order, n_groups));
    const int32_t most = (1 << bits) - 1, middle = 1 << (bits - 1);
    const TensorInfo* zeros = take(".weight_zero_point");
    if (zeros == nullptr) {
      to_.zero_ = middle;
      set_integer_rows(-middle, most - middle);
      return {};
    }
    const int64_t per_word = to_.codes_.per_word;
    const int64_t n_words = per_word != 0 ? ceil_div(N(), per_word) : ceil_div(N() * bits, 32);
    const TensorView& z = zeros->view;
    if (z.dtype != DType::kI32 || z.rank != 2 || z.dim[0] != n_words || z.dim[1] != n_groups) {
      return bad(*zeros, "should be I32 [" + std::to_string(n_words) + ", " + std::to_string(n_groups) +
                             "], words of its outputs");
    }
    to_.zeros_ = {.data = bytes(z), .bits = bits, .step = n_groups, .line_step = 1, .per_word = per_word};
    set_integer_rows(-most, most);
    return {};
  }
  // Words [N, P] of the inputs' codes: dense, or as many whole ones as a word holds.
  Status set_words_of_rows(const TensorInfo& words) {
    const TensorView& w = words.view;
    const auto fits = [&](int64_t n_words) {
      return w.dtype == DType::kI32 && w.rank == 2 && w.dim[0] == N() && w.dim[1] == n_words;
    };
    for (const int b : recipe_.bits.empty() ? std::vector<int>{4, 8, 2, 3} : recipe_.bits) {
      const bool is_dense = fits(ceil_div(K() * b, 32));
      if (!is_dense && (recipe_.method != QuantMethod::kCompressed || !fits(ceil_div(K(), 32 / b)))) continue;
      to_.codes_ = {.data = bytes(w), .bits = b, .line_step = w.dim[1], .per_word = is_dense ? 0 : 32 / b};
      return {};
    }
    return bad(words, "is no matrix " + sizes() + " of codes in words of its inputs, of any number of bits that the " +
                          "recipe has");
  }

  Status integer_bytes() {
    ASSIGN_OR_RETURN(const TensorView codes, need(".weight", DType::kI8, {N(), K()}));
    ASSIGN_OR_RETURN(const TensorInfo* scales, need(".weight_scale"));
    int64_t n_groups = 1;
    TRY(set_scales_by_row(*scales, n_groups));
    to_.codes_ = {.data = bytes(codes), .bits = 8, .line_step = K(), .is_int8 = true};
    const TensorInfo* zeros = take(".weight_zero_point");
    if (zeros == nullptr) {
      set_integer_rows(-128, 127);
      return {};
    }
    if (zeros->view.dtype != DType::kI8 || zeros->view.n_elements() != scales->view.n_elements()) {
      return bad(*zeros, "should be one byte for each scale");
    }
    to_.zeros_ = {
        .data = bytes(zeros->view), .bits = 8, .step = to_.scale_row_, .line_step = to_.scale_group_, .is_int8 = true};
    set_integer_rows(-255, 255);
    return {};
  }

  Status mlx() {
    ASSIGN_OR_RETURN(const TensorInfo* words, need(".weight"));
    ASSIGN_OR_RETURN(const TensorInfo* scales, need(".scales"));
    ASSIGN_OR_RETURN(const TensorInfo* biases, need(".biases"));
    TRY(set_words_of_rows(*words));
    int64_t n_groups = 1;
    TRY(set_scales_by_row(*scales, n_groups));
    const TensorView& b = biases->view;
    if (b.dtype != scales->view.dtype || b.rank != scales->view.rank || b.dim != scales->view.dim) {
      return bad(*biases, "should be of the scales' type and shape");
    }
    to_.biases_ = b;
    to_.kind_ = Kind::kAffine;
    to_.dtype_ = scales->view.dtype;
    const bool in_blocks = to_.codes_.bits <= 5 && K() % kBlock == 0 && to_.group_len_ % kBlock == 0;
    if (in_blocks && all_are_halves(scales->view) && all_are_halves(b))
      to_.dtype_ = to_.codes_.bits == 5 ? DType::kQ5_1 : DType::kQ4_1;
    return {};
  }

  Status float8() {
    ASSIGN_OR_RETURN(const TensorInfo* weight, need(".weight"));
    TRY(need(".weight", DType::kI8, {N(), K()}));
    const TensorInfo* scales = take(".weight_scale_inv");
    if (scales == nullptr) {
      ASSIGN_OR_RETURN(scales, need(".weight_scale"));
    }
    const TensorView& s = scales->view;
    if (!is_float(s.dtype) && !is_exponent(*scales)) return bad(*scales, "should be of floats or of exponents");
    to_.kind_ = Kind::kFloat8;
    to_.codes_ = {.data = bytes(weight->view)};
    to_.table_.resize(256);
    for (int i = 0; i < 256; ++i) {
      const auto code = static_cast<uint8_t>(i);
      to_.table_[static_cast<size_t>(i)] = to_float(weight->eight_bits, code);
    }
    to_.scales_ = s;
    to_.dtype_ = s.dtype == DType::kF16 ? DType::kF16 : DType::kBF16;
    const int64_t rows = s.dim[0], columns = s.rank == 1 ? 1 : s.dim[1];
    to_.scale_row_ = columns;
    to_.scale_group_ = 1;
    if (s.n_elements() == 1) {
      to_.scale_rows_ = N();
      to_.group_len_ = K();
    } else if (s.rank <= 2 && rows == N() && columns == 1) {
      to_.group_len_ = K();
    } else if (s.rank == 2 && rows == N() && is_exponent(*scales) && columns * kBlock == K()) {
      to_.group_len_ = kBlock;
    } else if (s.rank == 2 && rows == ceil_div(N(), recipe_.block_rows) &&
               columns == ceil_div(K(), recipe_.block_columns)) {
      to_.scale_rows_ = recipe_.block_rows;
      to_.group_len_ = recipe_.block_columns;
    } else {
      return bad(*scales, "has no scale of the matrix, its rows, or blocks of " + std::to_string(recipe_.block_rows) +
                              " x " + std::to_string(recipe_.block_columns) + " of a matrix " + sizes());
    }
    return {};
  }

  Status nvfp4(std::string_view of_codes, bool divides) {
    if (K() % 16 != 0) return odd_inputs(16);
    ASSIGN_OR_RETURN(const TensorView codes, need(of_codes, DType::kI8, {N(), K() / 2}));
    ASSIGN_OR_RETURN(to_.scales_, need(".weight_scale", DType::kI8, {N(), K() / 16}));
    if (const TensorInfo* s = find_beside(file_, base_, ".weight_scale"); s->eight_bits != EightBits::kE4M3) {
      return bad(*s, "should be F8_E4M3");
    }
    ASSIGN_OR_RETURN(to_.second_, need_number(divides ? ".weight_global_scale" : ".weight_scale_2"));
    to_.kind_ = Kind::kNvfp4;
    to_.dtype_ = DType::kBF16;
    to_.divides_ = divides;
    to_.codes_ = {.data = bytes(codes)};
    to_.scale_row_ = K() / 16;
    to_.scale_group_ = 1;
    return {};
  }
  Status mxfp4() {
    if (K() % kBlock != 0) return odd_inputs(kBlock);
    ASSIGN_OR_RETURN(const TensorView codes, need(".weight_packed", DType::kI8, {N(), K() / 2}));
    ASSIGN_OR_RETURN(to_.scales_, need(".weight_scale", DType::kI8, {N(), K() / kBlock}));
    if (const TensorInfo* s = find_beside(file_, base_, ".weight_scale"); !is_exponent(*s)) {
      return bad(*s, "should be U8: exponents");
    }
    to_.kind_ = Kind::kMxfp4;
    to_.dtype_ = DType::kMXFP4;
    to_.codes_ = {.data = bytes(codes)};
    return {};
  }
  Error odd_inputs(int64_t block) const {
    return invalid(file_.path() + ": " + in_quotes(base_) + " has " + std::to_string(K()) +
                       " inputs, which are no whole blocks of " + std::to_string(block),
                   base_);
  }

  Status scb() {
    ASSIGN_OR_RETURN(const TensorView codes, need(".weight", DType::kI8, {N(), K()}));
    ASSIGN_OR_RETURN(const TensorView absmax, need(".SCB", DType::kF32, {N()}));
    if (const TensorInfo* format = take(".weight_format"); format != nullptr) {
      if (format->view.n_elements() != 1 || format->view.dtype != DType::kI8 || format->view.data[0] != std::byte{0}) {
        return bad(*format, "is not 0: rows of bytes are what ibid reads");
      }
    }
    to_.kind_ = Kind::kScb;
    to_.dtype_ = DType::kF16;
    to_.codes_ = {.data = bytes(codes)};
    to_.scales_ = absmax;
    return {};
  }

  Status table() {
    const bool is_nf4 = find_beside(file_, base_, ".weight.quant_state.bitsandbytes__nf4") != nullptr;
    ASSIGN_OR_RETURN(const TensorInfo* codes, need(".weight"));
    ASSIGN_OR_RETURN(const TensorInfo* state,
                     need(is_nf4 ? ".weight.quant_state.bitsandbytes__nf4" : ".weight.quant_state.bitsandbytes__fp4"));
    const int64_t n = N() * K();
    if (codes->view.dtype != DType::kI8 || codes->view.n_elements() != ceil_div(n, 2)) {
      return bad(*codes, "should be a byte for two codes of a matrix " + sizes());
    }
    const std::string_view text(reinterpret_cast<const char*>(state->view.data), state->bytes());
    if (state->view.dtype != DType::kI8) return bad(*state, "should be of bytes");
    constexpr JsonLimits kLimits = {.max_bytes = 4096, .max_depth = 4, .max_values = 64};
    ASSIGN_OR_RETURN(const Json json, parse_json(text, state->name, kLimits));
    const auto number = [&json](std::string_view key) {
      const Json* value = json.find(key);
      return value != nullptr && value->integer() != nullptr ? *value->integer() : 0;
    };
    const Json* shape = json.find("shape");
    const bool is_of_sizes = shape != nullptr && shape->array() != nullptr && shape->array()->size() == 2 &&
                             (*shape->array())[0].integer() != nullptr && *(*shape->array())[0].integer() == N() &&
                             (*shape->array())[1].integer() != nullptr && *(*shape->array())[1].integer() == K();
    const int64_t block = number("blocksize");
    if (!is_of_sizes || block < 1) return bad(*state, "should have a blocksize and the shape " + sizes());
    const Json* dtype = json.find("dtype");
    const std::string_view name =
        dtype != nullptr && dtype->string() != nullptr ? *dtype->string() : std::string_view();
    if (name != "float16" && name != "bfloat16" && name != "float32") return bad(*state, "has no known dtype");
    to_.kind_ = Kind::kTable;
    to_.dtype_ = name == "float16" ? DType::kF16 : name == "bfloat16" ? DType::kBF16 : DType::kF32;
    to_.codes_ = {.data = bytes(codes->view)};
    to_.group_len_ = block;
    to_.table_.resize(16);
    for (size_t i = 0; i < 16; ++i)
      to_.table_[i] = std::bit_cast<float>(is_nf4 ? kNF4[i] : kFP4[i % 8] | (i >= 8 ? 0x80000000u : 0u));
    if (const TensorInfo* map = take(".weight.quant_map"); map != nullptr) {
      bool same = map->view.dtype == DType::kF32 && map->view.n_elements() == 16;
      for (int64_t i = 0; same && i < 16; ++i) same = element(map->view, i) == to_.table_[static_cast<size_t>(i)];
      if (!same) return bad(*map, std::string("should hold the sixteen values of ") + (is_nf4 ? "NF4" : "FP4"));
    }
    return set_block_scales(ceil_div(n, block), number("nested_blocksize"), json.find("nested_offset"));
  }
  // absmax of each block, themselves quantised where `nested` blocks them.
  Status set_block_scales(int64_t n_blocks, int64_t nested, const Json* offset) {
    ASSIGN_OR_RETURN(const TensorInfo* absmax, need(".weight.absmax"));
    const TensorView& a = absmax->view;
    if (a.n_elements() != n_blocks || (a.dtype != DType::kF32 && a.dtype != DType::kI8)) {
      return bad(*absmax, "should be F32 or U8 [" + std::to_string(n_blocks) + "]");
    }
    to_.block_scales_.resize(static_cast<size_t>(n_blocks));
    if (a.dtype == DType::kF32) {
      dequantise(a, to_.block_scales_.data());
      return {};
    }
    ASSIGN_OR_RETURN(const TensorView map, need(".weight.nested_quant_map", DType::kF32, {256}));
    if (nested < 1 || offset == nullptr || !offset->is_number()) {
      return bad(*absmax, "is of bytes, and the matrix's quant_state has no nested_blocksize or no nested_offset");
    }
    ASSIGN_OR_RETURN(const TensorView outer, need(".weight.nested_absmax", DType::kF32, {ceil_div(n_blocks, nested)}));
    const auto add = static_cast<float>(offset->number());
    for (int64_t i = 0; i < n_blocks; ++i) {
      const float scaled = element(map, static_cast<uint8_t>(a.data[i])) * element(outer, i / nested);
      to_.block_scales_[static_cast<size_t>(i)] = scaled + add;
    }
    return {};
  }

  static const uint8_t* bytes(const TensorView& view) { return reinterpret_cast<const uint8_t*>(view.data); }

  const ModelFile& file_;
  const QuantRecipe& recipe_;
  const std::string base_;
  QuantisedMatrix& to_;
};

bool QuantisedMatrix::is_in(const ModelFile& file, const QuantRecipe& recipe, std::string_view name) {
  if (!name.ends_with(kWeight)) return false;
  const std::string_view base = name.substr(0, name.size() - kWeight.size());
  const TensorInfo* weight = file.find(name);
  const auto is_of = [weight](std::initializer_list<DType> dtypes) {
    return weight != nullptr && std::ranges::find(dtypes, weight->view.dtype) != dtypes.end();
  };
  switch (recipe.method) {
    case QuantMethod::kNone:
    case QuantMethod::kMxfp4:
      return false;
    case QuantMethod::kGptq:
    case QuantMethod::kAwq:
      return find_beside(file, base, ".qweight") != nullptr;
    case QuantMethod::kCompressed:
      return find_beside(file, base, ".weight_packed") != nullptr || is_of({DType::kI8});
    case QuantMethod::kFp8:
    case QuantMethod::kModelOpt:
      return is_of({DType::kI8});
    case QuantMethod::kBitsAndBytes:
      return is_of({DType::kI8});
    case QuantMethod::kMlx:
      return is_of({DType::kI32}) && find_beside(file, base, ".scales") != nullptr;
  }
  return false;
}

Result<QuantisedMatrix> QuantisedMatrix::find(const ModelFile& file, const QuantRecipe& recipe, std::string_view name,
                                              int64_t n_outputs, int64_t n_inputs) {
  CHECK(is_in(file, recipe, name) && n_outputs > 0 && n_inputs > 0, "a quantised matrix of the folder");
  constexpr int64_t kMost = int64_t{1} << 31;  // of either size, so that no product of them overflows
  if (n_outputs > kMost || n_inputs > kMost) {
    return invalid(file.path() + ": " + in_quotes(name) + " is a quantised matrix of more than 2^31 rows or columns",
                   std::string(name));
  }
  QuantisedMatrix matrix;
  matrix.n_outputs_ = n_outputs;
  matrix.n_inputs_ = n_inputs;
  TRY(Finder(file, recipe, name, matrix).find());
  return matrix;
}

float QuantisedMatrix::scale(int64_t n, int64_t g) const {
  return element(scales_, n / scale_rows_ * scale_row_ + g * scale_group_,
                 kind_ == Kind::kNvfp4 ? EightBits::kE4M3 : EightBits::kE8M0);
}

void QuantisedMatrix::integer_row(int64_t n, int32_t* codes, float* scales) const {
  if (codes_are_columns_) {
    codes_.take_column(n, n_inputs_, codes);
  } else {
    codes_.take_line(n, n_inputs_, codes);
  }
  const auto zero_of = [&](int64_t g) { return zeros_.data == nullptr ? zero_ : zeros_.at(g, n) + zero_step_; };
  if (group_of_.empty()) {
    for (int64_t g = 0; g * group_len_ < n_inputs_; ++g) {
      const int32_t zero = zero_of(g);
      const float of_group = scale(n, g);
      for (int64_t k = g * group_len_; k < std::min(n_inputs_, (g + 1) * group_len_); ++k) {
        codes[k] -= zero;
        scales[k] = of_group;
      }
    }
    return;
  }
  for (int64_t k = 0; k < n_inputs_; ++k) {
    const int64_t g = group_of_[static_cast<size_t>(k)];
    codes[k] -= zero_of(g);
    scales[k] = scale(n, g);
  }
}

void QuantisedMatrix::float_row(int64_t n, float* values) const {
  const int64_t K = n_inputs_;
  const auto nibble = [this](int64_t i) { return codes_.data[i / 2] >> (i % 2 * 4) & 15; };
  switch (kind_) {
    case Kind::kIntegers:
    case Kind::kAffine: {
      std::vector<int32_t> codes(static_cast<size_t>(K));
      integer_row(n, codes.data(), values);
      for (int64_t k = 0; k < K; ++k) values[k] *= static_cast<float>(codes[static_cast<size_t>(k)]);
      for (int64_t k = 0; kind_ == Kind::kAffine && k < K; ++k) {
        const float product = dtype_ == DType::kF32 ? values[k] : widened(dtype_, rounded(dtype_, values[k]));
        values[k] = product + element(biases_, n * scale_row_ + k / group_len_ * scale_group_);
      }
      return;
    }
    case Kind::kFloat8:
      for (int64_t k = 0; k < K; ++k) values[k] = table_[codes_.data[n * K + k]];
      for (int64_t g = 0; g * group_len_ < K; ++g) {
        const float factor = scale(n, g);
        for (int64_t k = g * group_len_; k < std::min(K, (g + 1) * group_len_); ++k) values[k] *= factor;
      }
      return;
    case Kind::kNvfp4:
      for (int64_t g = 0; g < K / 16; ++g) {
        const float own = scale(n, g), factor = divides_ ? own / second_ : own * second_;
        for (int64_t k = 16 * g; k < 16 * (g + 1); ++k) values[k] = kE2M1[nibble(n * K + k)] * factor;
      }
      return;
    case Kind::kTable:
      for (int64_t k = 0; k < K; ++k) {
        const int64_t i = n * K + k;
        const int code = codes_.data[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15;  // the first of two is the high half
        values[k] = table_[static_cast<size_t>(code)] * block_scales_[static_cast<size_t>(i / group_len_)];
      }
      return;
    case Kind::kScb: {
      const float absmax = element(scales_, n);
      for (int64_t k = 0; k < K; ++k) {
        const float scaled = static_cast<float>(static_cast<int8_t>(codes_.data[n * K + k])) * absmax;
        values[k] = scaled * k127th;
      }
      return;
    }
    case Kind::kMxfp4:
      break;
  }
  CHECK(false, "MXFP4 stays blocks");
}

namespace {

// A row's blocks of 32; codes without their zero.
template <typename Block>
void write_blocks(const int32_t* codes, const float* scales, int64_t n, std::byte* to) {
  for (int64_t k = 0; k < n; k += kBlock, codes += kBlock) {
    Block block = {};
    block.scale = float_to_half(scales[k]);
    if constexpr (std::is_same_v<Block, BlockQ8_0>) {
      for (int i = 0; i < kBlock; ++i) block.codes[i] = static_cast<int8_t>(codes[i]);
    } else {
      constexpr int kOffset = requires { block.min; }
      ? 0 : requires { block.high; }
      ? 16 : 8;
      for (int i = 0; i < 16; ++i) {
        const int low = codes[i] + kOffset, high = codes[i + 16] + kOffset;
        block.codes[i] = static_cast<uint8_t>((low & 15) | (high & 15) << 4);
      }
      if constexpr (requires { block.high; }) {
        for (int i = 0; i < kBlock; ++i)
          block.high[i / 8] = static_cast<uint8_t>(block.high[i / 8] | ((codes[i] + kOffset) >> 4 & 1) << (i % 8));
      }
    }
    std::memcpy(to, &block, sizeof block);
    to += sizeof block;
  }
}

}  // namespace

template <typename Block>
void QuantisedMatrix::write_mins(int64_t n, std::byte* row) const {
  for (int64_t b = 0; b < n_inputs_ / kBlock; ++b) {
    const uint16_t min = float_to_half(element(biases_, n * scale_row_ + b * kBlock / group_len_ * scale_group_));
    std::memcpy(row + b * static_cast<int64_t>(sizeof(Block)) + offsetof(Block, min), &min, 2);
  }
}

void QuantisedMatrix::rows(int64_t row, int64_t row_end, std::byte* to) const {
  const int64_t K = n_inputs_, n_bytes = row_bytes(dtype_, K);
  std::vector<float> values(static_cast<size_t>(K));
  std::vector<int32_t> codes(is_quantised(dtype_) ? static_cast<size_t>(K) : 0);
  for (int64_t n = row; n < row_end; ++n, to += n_bytes) {
    if (dtype_ == DType::kMXFP4) {
      for (int64_t b = 0; b < K / kBlock; ++b) {
        BlockMXFP4 block;
        block.exponent = static_cast<uint8_t>(scales_.data[n * (K / kBlock) + b]);
        const uint8_t* pairs = codes_.data + (n * K + b * kBlock) / 2;
        const auto code = [pairs](int i) { return pairs[i / 2] >> (i % 2 * 4) & 15; };
        for (int i = 0; i < 16; ++i) block.codes[i] = static_cast<uint8_t>(code(i) | code(i + 16) << 4);
        std::memcpy(to + b * static_cast<int64_t>(sizeof block), &block, sizeof block);
      }
      continue;
    }
    if (is_quantised(dtype_)) {
      integer_row(n, codes.data(), values.data());
      if (dtype_ == DType::kQ4_0) write_blocks<BlockQ4_0>(codes.data(), values.data(), K, to);
      if (dtype_ == DType::kQ5_0) write_blocks<BlockQ5_0>(codes.data(), values.data(), K, to);
      if (dtype_ == DType::kQ8_0) write_blocks<BlockQ8_0>(codes.data(), values.data(), K, to);
      if (dtype_ == DType::kQ4_1) {
        write_blocks<BlockQ4_1>(codes.data(), values.data(), K, to);
        write_mins<BlockQ4_1>(n, to);
      } else if (dtype_ == DType::kQ5_1) {
        write_blocks<BlockQ5_1>(codes.data(), values.data(), K, to);
        write_mins<BlockQ5_1>(n, to);
      }
      continue;
    }
    float_row(n, values.data());
    for (int64_t k = 0; k < K; ++k) {
      const float value = values[static_cast<size_t>(k)];
      if (dtype_ == DType::kF32) {
        std::memcpy(to + k * 4, &value, 4);
        continue;
      }
      const uint16_t half = rounded(dtype_, value);
      std::memcpy(to + k * 2, &half, 2);
    }
  }
}

bool is_beside_quantised(const TensorInfo& tensor) {
  for (const std::string_view end : {".k_scale", ".v_scale", ".q_scale", ".kv_scale", ".prob_scale", ".output_scale",
                                     ".k_zero_point", ".v_zero_point"}) {
    if (tensor.name.ends_with(end)) return true;
  }
  const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
  return tensor.name.ends_with(".bias") && tensor.view.rank == 1 &&
         std::all_of(tensor.view.data, tensor.view.data + tensor.bytes(), is_zero);
}

}  // namespace ibid
