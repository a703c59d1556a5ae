#include "format/requantise.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "base/quoted.h"
#include "format/gguf_writer.h"
#include "tensor/dequantise.h"
#include "tensor/quantise.h"

namespace ibid {
namespace {

constexpr int64_t kChunkFloats = int64_t{1} << 21;

// Rows [begin, begin + n_heads * head_len) of a tensor are heads; of each `per_group` neighbours their mean stays.
struct Pool {
  int64_t begin = 0, n_heads = 0, head_len = 0, per_group = 1;
  int64_t end() const { return begin + n_heads * head_len; }
  int64_t n_dropped() const { return n_heads * head_len - n_heads / per_group * head_len; }
};

// What becomes of a tensor.
struct Plan {
  const TensorInfo* from;
  DType dtype;
  DType wished;
  const RowTerms* terms = nullptr;  // null: nothing is added
  std::vector<Pool> pools;          // ascending
  std::vector<int64_t> dims;        // of the result
  int64_t n_rows = 0, row_len = 0;  // of the result; a vector that is pooled has rows of one
  bool is_copied = false;
  std::vector<float> importance;  // [n, inputs] of its n matrices; empty: none
  const float* importance_of(int64_t row) const {
    if (importance.empty()) return nullptr;
    const int64_t n = std::ssize(importance) / row_len;
    return importance.data() + row / (n_rows / n) * row_len;
  }
};

// A row of the result is the mean of `n` rows of the source, `stride` apart.
struct Mean {
  int64_t row, n, stride;
};
Mean mean_of(const Plan& plan, int64_t row) {
  int64_t dropped = 0;
  for (const Pool& p : plan.pools) {
    const int64_t here = row + dropped;
    if (here < p.begin) break;
    const int64_t in = here - p.begin, head = in / p.head_len;
    if (head < p.n_heads / p.per_group) {
      return {p.begin + head * p.per_group * p.head_len + in % p.head_len, p.per_group, p.head_len};
    }
    dropped += p.n_dropped();
  }
  return {row + dropped, 1, 0};
}

std::vector<Pool> pools_of(const TensorInfo& tensor, const RequantiseOptions& o) {
  const std::string_view name = tensor.name;
  if (o.kv_groups == 0 || o.kv_groups == o.n_kv_heads || !name.starts_with("blk.")) return {};
  const int64_t D = o.head_len, per_group = o.n_kv_heads / o.kv_groups;
  const auto is = [&](std::string_view part) {
    return name.ends_with(std::string(part) + ".weight") || name.ends_with(std::string(part) + ".bias");
  };
  const bool is_norm_of_all = is(".attn_k_norm") && tensor.view.dim[0] == o.n_kv_heads * D;
  if (is(".attn_k") || is(".attn_v") || is_norm_of_all) return {{0, o.n_kv_heads, D, per_group}};
  if (is(".attn_qkv")) {
    return {{o.n_heads * D, o.n_kv_heads, D, per_group}, {(o.n_heads + o.n_kv_heads) * D, o.n_kv_heads, D, per_group}};
  }
  return {};
}

// One that a mixture has a type for: a product's, or those of all experts of a layer. A router and the taps of a
// convolution over time keep their own.
bool is_matrix(const TensorInfo& t) {
  const TensorView& v = t.view;
  constexpr std::string_view kFloats[] = {"ffn_gate_inp", "shortconv.conv.", "ssm_conv1d"};
  const bool is_float =
      std::ranges::any_of(kFloats, [&](std::string_view part) { return t.name.find(part) != std::string::npos; });
  return (v.rank == 2 || (v.rank == 3 && t.name.ends_with("_exps.weight"))) && is_weight_type(v.dtype) &&
         t.name.ends_with(".weight") && t.name.find("norm") == std::string::npos && !is_float;
}

// Whether its rows are those of a delta net, whose q, k and v lie in one and have no key/value heads of attention.
bool is_of_delta_net(const ModelFile& from, const TensorInfo& t) {
  const size_t at = t.name.rfind("attn_qkv.");
  return at != std::string::npos && from.find(t.name.substr(0, at) + "ssm_conv1d.weight") != nullptr;
}

Result<Plan> plan_of(const ModelFile& from, const TensorInfo& t, const RequantiseOptions& o, bool tied) {
  const TensorView& v = t.view;
  Plan plan{.from = &t, .dtype = v.dtype, .wished = v.dtype, .pools = {}, .dims = {}};
  if (!is_of_delta_net(from, t)) plan.pools = pools_of(t, o);
  plan.dims.assign(v.dim.begin(), v.dim.begin() + v.rank);
  if (is_matrix(t) && !is_left(o.types, t.name)) {
    const MixedMatrix matrix = {
        t.name, o.n_layers, std::max<int64_t>(1, o.n_heads / std::max<int64_t>(1, o.n_kv_heads)), v.row_len(), tied};
    plan.dtype = fitting_dtype(o.types, matrix);
    plan.wished = wished_dtype(o.types, matrix);
  }
  if (!plan.pools.empty()) {
    if (v.rank > 2 || !is_weight_type(v.dtype) || v.dim[0] != plan.pools.back().end()) {
      return invalid(in_quotes(t.name) + " does not have the rows of " + std::to_string(o.n_kv_heads) +
                     " key and value heads, so they cannot be averaged");
    }
    // Its rows have one element, a block has many.
    if (v.rank == 1 && is_quantised(v.dtype)) {
      return unsupported(in_quotes(t.name) + " is a vector of type " + std::string(traits(v.dtype).name) +
                         ", whose elements cannot be averaged one by one; expected F32, F16 or BF16");
    }
    for (const Pool& p : plan.pools) plan.dims[0] -= p.n_dropped();
  }
  if (o.terms != nullptr && o.terms->has(t.name)) plan.terms = o.terms;
  plan.is_copied = plan.pools.empty() && plan.dtype == v.dtype && plan.terms == nullptr;
  if (!plan.is_copied && is_quantised(v.dtype) && !o.requantises) {
    return unsupported(in_quotes(t.name) + " of " + from.path() + " is quantised already (" +
                       std::string(traits(v.dtype).name) +
                       "), and what it lost stays lost; --allow-requantize quantises it again, and a file of F16 or "
                       "BF16 gives a better one");
  }
  const bool is_vector = v.rank == 1 && plan.terms == nullptr;  // else a matrix of one row
  plan.row_len = is_vector ? 1 : v.row_len();
  plan.n_rows = v.rank == 1 ? (is_vector ? plan.dims[0] : 1) : plan.dims[0] * (v.n_rows() / v.dim[0]);
  if (o.importance != nullptr && is_matrix(t)) {
    ASSIGN_OR_RETURN(plan.importance, o.importance->weights(t.name, v.rank == 3 ? v.dim[0] : 1, v.row_len()));
  }
  if (!plan.is_copied) TRY(check_importance(t.name, plan.dtype, !plan.importance.empty()));
  return plan;
}

// The rows of a plan, in chunks, to `put`.
class Rows {
 public:
  Rows(const Plan& plan, ThreadTeam& team)
      : plan_(plan), team_(team), scratch_(static_cast<size_t>(team.n_threads())) {}

  Status write(const GgufWriter::Put& put, const std::function<void(uint64_t)>& read) {
    const TensorView& v = plan_.from->view;
    if (plan_.is_copied) {
      TRY(put({v.data, plan_.from->bytes()}));
      read(plan_.from->bytes());
      return {};
    }
    const int64_t a_row = row_bytes(plan_.dtype, plan_.row_len);
    const int64_t chunk = std::max<int64_t>(1, std::min(plan_.n_rows, kChunkFloats / plan_.row_len));
    std::vector<std::byte> out(static_cast<size_t>(chunk * a_row));
    uint64_t n_read = 0;
    for (int64_t row = 0; row < plan_.n_rows; row += chunk) {
      const int64_t n = std::min(chunk, plan_.n_rows - row);
      team_.parallel_for(n, [&](int64_t i, int thread) {
        make(row + i, out.data() + i * a_row, scratch_[static_cast<size_t>(thread)]);
      });
      if (!is_finite_) return invalid(in_quotes(plan_.from->name) + " holds a number that is not finite");
      TRY(put({out.data(), static_cast<size_t>(n * a_row)}));
      const auto done = static_cast<uint64_t>(static_cast<double>(plan_.from->bytes()) * static_cast<double>(row + n) /
                                              static_cast<double>(plan_.n_rows));
      read(done - n_read);
      n_read = done;
    }
    return {};
  }

 private:
  struct Scratch {
    std::vector<float> row;
    std::vector<double> sum;
  };
  const std::byte* source_row(int64_t row) const {
    const TensorView& v = plan_.from->view;
    return v.data + row * (v.rank == 1 ? row_bytes(v.dtype, 1) : v.row_stride_bytes);
  }
  void make(int64_t row, std::byte* to, Scratch& s) {
    const DType from = plan_.from->view.dtype;
    const int64_t n = plan_.row_len;
    s.row.resize(static_cast<size_t>(n));
    const Mean mean = mean_of(plan_, row);
    dequantise_row(from, source_row(mean.row), s.row.data(), n);
    if (mean.n > 1) {
      s.sum.assign(s.row.begin(), s.row.end());
      for (int64_t i = 1; i < mean.n; ++i) {
        dequantise_row(from, source_row(mean.row + i * mean.stride), s.row.data(), n);
        for (size_t k = 0; k < s.sum.size(); ++k) s.sum[k] += static_cast<double>(s.row[k]);
      }
      for (size_t k = 0; k < s.sum.size(); ++k) {
        s.row[k] = static_cast<float>(s.sum[k] / static_cast<double>(mean.n));
      }
    }
    if (plan_.terms != nullptr) plan_.terms->add(plan_.from->name, row, s.row);
    if (!std::ranges::all_of(s.row, [](float x) { return std::isfinite(x); })) is_finite_ = false;
    quantise_row(plan_.dtype, s.row.data(), to, n, plan_.importance_of(row));
  }

  const Plan& plan_;
  ThreadTeam& team_;
  std::vector<Scratch> scratch_;
  std::atomic<bool> is_finite_ = true;
};

// The tensors that the files of a model begin with.
std::vector<size_t> first_of_files(const ModelFile& from) {
  std::vector<size_t> first;
  const auto file_of = [&](const TensorInfo& t) {
    for (size_t i = 0; i < from.files().size(); ++i) {
      const std::span<const std::byte> bytes = from.files()[i].bytes();
      if (t.view.data >= bytes.data() && t.view.data < bytes.data() + bytes.size()) return i;
    }
    return size_t{0};
  };
  for (size_t i = 0; i < from.tensors().size(); ++i) {
    if (i == 0 || file_of(from.tensors()[i]) != file_of(from.tensors()[i - 1])) first.push_back(i);
  }
  return first;
}

}  // namespace

Status write_gguf(const GgufWriter& writer, const std::string& to, const Shards& shards,
                  std::span<const size_t> first) {
  const std::string prefix = to.ends_with(".gguf") ? to.substr(0, to.size() - 5) : to;
  if (shards.max_bytes > 0) return writer.write_shards(prefix, writer.shards_of(shards.max_bytes));
  if (shards.keep && first.size() > 1) return writer.write_shards(prefix, first);
  return writer.write(to);
}

Result<Requantised> requantise(const ModelFile& from, const std::string& to, const RequantiseOptions& options,
                               ThreadTeam& team, const std::function<void(uint64_t, uint64_t)>& progress) {
  if (from.container() != Container::kGguf) {
    return unsupported(
        from.path() +
        " is a folder of safetensors, whose key and value heads are not averaged; `ibid convert` makes a GGUF file of "
        "it first");
  }
  const int64_t K = options.n_kv_heads, G = options.kv_groups;
  if (G < 0 || G > K || (G != 0 && K % G != 0)) {
    return invalid(std::to_string(K) + " key and value heads cannot be averaged into " + std::to_string(G) +
                   " equal groups; expected a divisor of " + std::to_string(K));
  }
  if (G != 0 && options.terms != nullptr)
    return unsupported("heads are averaged, or adapters merged, not both at once; write a file for each step");
  GgufWriter writer;
  writer.set("general.architecture", options.architecture.c_str());
  for (const auto& [key, value] : from.metadata()) {
    if (key != "general.alignment" && !key.starts_with("split.")) writer.set(key, value);
  }
  writer.set("general.file_type", MetaValue(quant_mix_file_type(options.types.mix)));
  writer.set("general.quantization_version", 2);
  if (const std::string key = options.architecture + ".attention.head_count_kv"; G != 0) {
    std::vector<int64_t> of_layers = {G};
    if (from.has_meta(key)) {
      ASSIGN_OR_RETURN(of_layers, from.meta_ints(key));
    }
    for (int64_t& n : of_layers) n = n == 0 ? 0 : G;  // 0: a layer without attention
    writer.set(key, of_layers.size() == 1 ? MetaValue(G) : MetaValue(of_layers));
  }

  Requantised out;
  const bool tied = from.find("output.weight") == nullptr;
  std::vector<Plan> plans;
  for (const TensorInfo& t : from.tensors()) {
    ASSIGN_OR_RETURN(Plan plan, plan_of(from, t, options, tied));
    plans.push_back(std::move(plan));
  }
  uint64_t all = 0, done = 0;
  const auto read = [&](uint64_t bytes) {
    done += bytes;
    if (progress) progress(done, all);
  };
  for (const Plan& plan : plans) {
    const TensorInfo& t = *plan.from;
    all += t.bytes();
    int64_t n = 1;
    for (int64_t dim : plan.dims) n *= dim;
    out.n_parameters += n;
    const auto bytes = static_cast<uint64_t>(row_bytes(plan.dtype, plan.dims.back()) * (n / plan.dims.back()));
    out.bytes += bytes;
    out.tensors.push_back({t.name, plan.dims, t.view.dtype, plan.dtype, t.bytes(), bytes});
    out.was_quantised |= is_quantised(t.view.dtype) && !plan.is_copied;
    if (t.view.rank >= 2) ++out.matrices[plan.dtype];
    if (!plan.is_copied && !plan.importance.empty()) ++out.n_weighted;
    if (plan.dtype != plan.wished) ++out.instead[{plan.wished, plan.dtype, plan.row_len}];
    writer.add_tensor(t.name, plan.dtype, plan.dims,
                      [&plan, &team, &from, &read](const GgufWriter::Put& put) -> Status {
                        TRY(Rows(plan, team).write(put, read));
                        from.forget(plan.from->view);
                        return {};
                      });
  }
  if (options.dry_run) return out;
  TRY(write_gguf(writer, to, options.shards, first_of_files(from)));
  return out;
}

}  // namespace ibid
