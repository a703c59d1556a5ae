#include "model/activation_sums.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/gguf_form.h"
#include "model/perplexity.h"

namespace ibid {
namespace {

// The products that read an intermediate (docs/developers/adding_a_model.md names these).
struct Readers {
  std::string_view intermediate;
  std::vector<std::string_view> products;
};
const std::vector<Readers>& all_readers() {
  static const std::vector<Readers> kReaders = {
      {"attn_norm",
       {"attn_q", "attn_k", "attn_v", "attn_qkv", "attn_gate", "attn_q_a", "attn_kv_a_mqa", "ssm_ba", "ssm_alpha",
        "ssm_beta", "shortconv.in_proj"}},
      {"attention", {"attn_output"}},
      {"mixed", {"ssm_out", "shortconv.out_proj"}},
      {"ffn_norm", {"ffn_gate", "ffn_up", "ffn_gate_shexp", "ffn_up_shexp"}},
      {"gated", {"ffn_down"}},
      {"shared_gated", {"ffn_down_shexp"}},
      {"expert_in", {"ffn_gate_exps", "ffn_up_exps", "ffn_gate_up_exps"}},
      {"expert_gated", {"ffn_down_exps"}},
  };
  return kReaders;
}

// Of the n matrices that read an intermediate: one, or each expert's.
struct Sum {
  std::vector<double> squares;    // [n, K]
  std::vector<int64_t> n_tokens;  // [n]
  int64_t n_inputs = 0;           // K

  void add(size_t matrix, const float* row) {
    double* to = squares.data() + matrix * static_cast<size_t>(n_inputs);
    for (int64_t k = 0; k < n_inputs; ++k) to[k] += static_cast<double>(row[k]) * static_cast<double>(row[k]);
    ++n_tokens[matrix];
  }
};

// What a model's tap shows, summed. Of experts a layer's rows come before what they read.
class Sums {
 public:
  void see(std::string_view name, int layer, const TensorView& x) {
    if (name == "expert_first_row") first_row_ = integers(x);
    if (name == "expert_token") token_ = integers(x);
    const bool is_read = name == "final_norm" ||
                         std::ranges::any_of(all_readers(), [&](const Readers& r) { return r.intermediate == name; });
    if (!is_read || x.dtype != DType::kF32) return;
    const bool is_token = name == "expert_in", is_row = name == "expert_gated";
    const size_t n = is_token || is_row ? first_row_.size() - 1 : 1;
    Sum& sum = of[{layer, std::string(name)}];
    sum.n_inputs = x.row_len();
    sum.squares.resize(n * static_cast<size_t>(x.row_len()));
    sum.n_tokens.resize(n);
    for (size_t e = 0; e < n; ++e) {
      const int64_t begin = is_token || is_row ? first_row_[e] : 0;
      const int64_t end = is_token || is_row ? first_row_[e + 1] : x.n_rows();
      for (int64_t r = begin; r < end; ++r)
        sum.add(e, x.row_as<const float>(is_token ? token_[static_cast<size_t>(r)] : r));
    }
  }

  std::map<std::pair<int, std::string>, Sum> of;  // by layer and intermediate

 private:
  static std::vector<int32_t> integers(const TensorView& x) {
    return {x.row_as<const int32_t>(0), x.row_as<const int32_t>(0) + x.row_len()};
  }
  std::vector<int32_t> first_row_, token_;
};

}  // namespace

std::string_view input_of(std::string_view product) {
  for (const Readers& readers : all_readers()) {
    if (std::ranges::find(readers.products, product) != readers.products.end()) return readers.intermediate;
  }
  return {};
}

Status run_chunks(Model& model, Stream& stream, std::span<const TokenId> tokens, int64_t chunk_len, TokenId begin,
                  const Tap& tap, const std::function<void(uint64_t, uint64_t)>& progress) {
  const auto n = static_cast<int64_t>(tokens.size());
  if (n < 2) return invalid("the text has " + std::to_string(n) + " tokens; two or more are summed over");
  if (chunk_len < 2 || chunk_len > model.context_len()) {
    return invalid("a chunk has 2 to " + std::to_string(model.context_len()) + " tokens, not " +
                   std::to_string(chunk_len));
  }
  model.set_tap(tap);
  Status status;
  for (int64_t at = 0; at + 1 < n && status.ok(); at += chunk_len) {
    const auto len = static_cast<size_t>(std::min(chunk_len, n - at));
    if (len < 2) break;
    std::vector<TokenId> chunk(tokens.begin() + at, tokens.begin() + at + static_cast<int64_t>(len));
    if (begin != TokenId::kNone) chunk.front() = begin;
    const Result<TextScore> scored = score_text(model, stream, DType::kF32, chunk);
    if (!scored) status = scored.error();
    if (progress) progress(static_cast<uint64_t>(at) + len, static_cast<uint64_t>(n));
  }
  model.set_tap({});
  return status;
}

Result<Importance> sum_activations(Model& model, Stream& stream, std::span<const TokenId> tokens, int64_t chunk_len,
                                   TokenId begin, bool with_output,
                                   const std::function<void(uint64_t, uint64_t)>& progress) {
  Sums sums;
  TRY(run_chunks(
      model, stream, tokens, chunk_len, begin,
      [&](std::string_view name, int layer, const TensorView& x) { sums.see(name, layer, x); }, progress));
  Importance out;
  out.chunk_len = chunk_len;
  for (int64_t at = 0; std::ssize(tokens) - at >= 2; at += chunk_len) ++out.n_chunks;

  std::map<std::string, std::pair<int64_t, int64_t>> sizes;  // of the model's matrices: n, K
  for (const TensorSpec& spec : tensors_of(model.config())) {
    if (spec.dims.size() >= 2) sizes[spec.name] = {spec.dims.size() == 2 ? 1 : spec.dims.front(), spec.dims.back()};
  }
  const auto put = [&](const std::string& name, const Sum& sum) {
    const auto found = sizes.find(name);
    if (found == sizes.end() || found->second != std::pair(std::ssize(sum.n_tokens), sum.n_inputs)) return;
    out.of[name] = {.n_inputs = sum.n_inputs,
                    .squares = {sum.squares.begin(), sum.squares.end()},
                    .counts = {sum.n_tokens.begin(), sum.n_tokens.end()}};
  };
  for (const auto& [key, sum] : sums.of) {
    const auto& [layer, intermediate] = key;
    if (intermediate == "final_norm") {
      if (with_output) put("output.weight", sum);
      continue;
    }
    for (const Readers& readers : all_readers()) {
      if (readers.intermediate != intermediate) continue;
      for (const std::string_view product : readers.products) {
        put("blk." + std::to_string(layer) + "." + std::string(product) + ".weight", sum);
      }
    }
  }
  return out;
}

}  // namespace ibid
