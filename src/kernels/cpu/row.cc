#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/row_table.h"
#include "kernels/cpu/table.h"
#include "kernels/math.h"

namespace ibid::cpu {
namespace {

// An activation's cost against an addition's.
constexpr int kExpWeight = 8;

const float* vector_of(const TensorView& x) { return reinterpret_cast<const float*>(x.data); }

int64_t stride_of(const TensorView& x) { return x.row_stride_bytes / static_cast<int64_t>(sizeof(float)); }

// body(i) for each row of x, over the team.
template <typename Body>
void each_row(Stream& s, const TensorView& x, int weight, Body&& body) {
  for_rows(s, x.n_rows(), x.row_len(), weight, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

using Binary = void (*)(float*, const float*, const float*, int64_t);
void binary(Stream& s, const TensorView& out, const TensorView& x, const TensorView& y, Binary row) {
  const int64_t C = out.row_len();
  each_row(s, out, kExpWeight,
           [&](int64_t i) { row(out.row_as<float>(i), x.row_as<float>(i), y.row_as<float>(i), C); });
}

using Unary = void (*)(float*, const float*, int64_t);
void unary(Stream& s, const TensorView& out, const TensorView& x, Unary row) {
  each_row(s, out, kExpWeight, [&](int64_t i) { row(out.row_as<float>(i), x.row_as<float>(i), out.row_len()); });
}

}  // namespace

void rms_norm(Stream& s, const TensorView& out, const TensorView& x, const TensorView& weight, float eps) {
  const auto rows = table().row->rms_norm;
  for_rows(s, out.n_rows(), out.row_len(), 2, [&](int64_t begin, int64_t end) {
    rows(out.row_as<float>(begin), stride_of(out), x.row_as<float>(begin), stride_of(x), vector_of(weight), end - begin,
         out.row_len(), eps);
  });
}

void add_rms_norm(Stream& s, const TensorView& out, const TensorView& x, const TensorView& y, const TensorView& weight,
                  float eps) {
  const auto rows = table().row->add_rms_norm;
  for_rows(s, out.n_rows(), out.row_len(), 2, [&](int64_t begin, int64_t end) {
    rows(out.row_as<float>(begin), stride_of(out), x.row_as<float>(begin), stride_of(x), y.row_as<float>(begin),
         stride_of(y), vector_of(weight), end - begin, out.row_len(), eps);
  });
}

void layer_norm(Stream& s, const TensorView& out, const TensorView& x, const TensorView& weight, const TensorView& bias,
                float eps) {
  const auto row = table().row->layer_norm;
  each_row(s, out, 2, [&](int64_t i) {
    row(out.row_as<float>(i), x.row_as<float>(i), vector_of(weight), vector_of(bias), out.row_len(), eps);
  });
}

void add_bias(Stream& s, const TensorView& x, const TensorView& bias) {
  const auto row = table().row->add;
  each_row(s, x, 1, [&](int64_t i) { row(x.row_as<float>(i), vector_of(bias), x.row_len()); });
}

void add(Stream& s, const TensorView& x, const TensorView& y) {
  const auto row = table().row->add;
  each_row(s, x, 1, [&](int64_t i) { row(x.row_as<float>(i), y.row_as<float>(i), x.row_len()); });
}

void scale(Stream& s, const TensorView& x, float factor) {
  const auto row = table().row->scale;
  each_row(s, x, 1, [&](int64_t i) { row(x.row_as<float>(i), factor, x.row_len()); });
}

void scale_by_position(Stream& s, const TensorView& x, std::span<const int32_t> positions, float slope,
                       int64_t length) {
  const auto row = table().row->scale;
  each_row(s, x, 1, [&](int64_t i) {
    const int64_t n = positions[static_cast<size_t>(i)] / length;
    const double factor = 1.0 + double{slope} * math::log(1.0 + static_cast<double>(n));
    row(x.row_as<float>(i), static_cast<float>(factor), x.row_len());
  });
}

void silu_mul(Stream& s, const TensorView& out, const TensorView& gate, const TensorView& up) {
  binary(s, out, gate, up, table().row->silu_mul);
}

void gelu_mul(Stream& s, const TensorView& out, const TensorView& gate, const TensorView& up) {
  binary(s, out, gate, up, table().row->gelu_mul);
}

void clamped_silu_mul(Stream& s, const TensorView& out, const TensorView& gate, const TensorView& up, float limit) {
  const auto row = table().row->clamped_silu_mul;
  each_row(s, out, kExpWeight, [&](int64_t i) {
    row(out.row_as<float>(i), gate.row_as<float>(i), up.row_as<float>(i), out.row_len(), limit);
  });
}

void gelu(Stream& s, const TensorView& out, const TensorView& x) { unary(s, out, x, table().row->gelu); }
void gelu_tanh(Stream& s, const TensorView& out, const TensorView& x) { unary(s, out, x, table().row->gelu_tanh); }
void tanh(Stream& s, const TensorView& out, const TensorView& x) { unary(s, out, x, table().row->tanh); }

// One product rounded once, so every table's bits: compiled for none of them.
void relu_squared(Stream& s, const TensorView& out, const TensorView& x) {
  each_row(s, out, 1, [&](int64_t i) {
    float* to = out.row_as<float>(i);
    const float* from = x.row_as<const float>(i);
    for (int64_t j = 0; j < out.row_len(); ++j) to[j] = from[j] < 0.0f ? 0.0f : from[j] * from[j];
  });
}

// No rounding: the same bits whatever it is compiled for.
void clamp(Stream& s, const TensorView& x, float limit) {
  each_row(s, x, 1, [&](int64_t i) {
    float* row = x.row_as<float>(i);
    for (int64_t j = 0; j < x.row_len(); ++j) row[j] = row[j] > limit ? limit : row[j] < -limit ? -limit : row[j];
  });
}

void soft_cap(Stream& s, const TensorView& logits, float cap) {
  const auto row = table().row->soft_cap;
  each_row(s, logits, kExpWeight, [&](int64_t i) { row(logits.row_as<float>(i), cap, logits.row_len()); });
}

void log_softmax(Stream& s, const TensorView& out, const TensorView& logits) {
  const auto row = table().row->log_softmax;
  each_row(s, out, kExpWeight, [&](int64_t i) { row(out.row_as<float>(i), logits.row_as<float>(i), out.row_len()); });
}

// Rows that are not of the step are few, and copied faster than a team is woken.
void put_rows(const TensorView& x, std::span<const float* const> rows, int64_t from) {
  for (int64_t t = 0; t < x.n_rows(); ++t) {
    if (const float* row = rows[static_cast<size_t>(t)]; row != nullptr)
      std::memcpy(x.row(t), row + from, static_cast<size_t>(x.row_len()) * sizeof(float));
  }
}

void add_rows(const TensorView& x, std::span<const float* const> rows, int64_t from) {
  for (int64_t t = 0; t < x.n_rows(); ++t) {
    const float* row = rows[static_cast<size_t>(t)];
    for (int64_t i = 0; row != nullptr && i < x.row_len(); ++i) x.row_as<float>(t)[i] += row[from + i];
  }
}

void gather_rows(Stream& s, const TensorView& out, const TensorView& x, std::span<const int32_t> rows) {
  each_row(s, out, 1, [&](int64_t i) {
    const int32_t row = rows[static_cast<size_t>(i)];
    CHECK(row >= 0 && row < x.n_rows());
    std::memcpy(out.row(i), x.row(row), static_cast<size_t>(out.row_len()) * sizeof(float));
  });
}

void copy_rows(Stream& s, const TensorView& out, std::span<const int32_t> out_rows, const TensorView& x,
               std::span<const int32_t> rows) {
  each_row(s, out.first_rows(std::ssize(rows)), 1, [&](int64_t i) {
    const int32_t to = out_rows[static_cast<size_t>(i)], from = rows[static_cast<size_t>(i)];
    CHECK(to >= 0 && to < out.n_rows() && from >= 0 && from < x.n_rows());
    std::memcpy(out.row(to), x.row(from), static_cast<size_t>(out.row_len()) * sizeof(float));
  });
}

void copy_heads(Stream& s, const TensorView& out, const TensorView& x, int64_t n_heads, const ops::HeadColumns& c) {
  const int64_t out_len = out.row_len() / n_heads, x_len = x.row_len() / n_heads;
  for_rows(s, out.n_rows(), n_heads * c.len, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t h = 0; h < n_heads; ++h) {
        std::memcpy(out.row_as<float>(t) + h * out_len + c.to, x.row_as<float>(t) + h * x_len + c.from,
                    static_cast<size_t>(c.len) * sizeof(float));
      }
    }
  });
}

}  // namespace ibid::cpu
