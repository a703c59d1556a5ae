// Row C5: the whole of a language model as plain loops over growing lists, in double precision, one token at a time.
// It shares no code with the forward pass, and the two must choose the same tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "model/kv_arithmetic.h"
#include "model/testing/batch_of_one.h"
#include "model/testing/loaded_model.h"
#include "model/testing/mixed_layers.h"
#include "tensor/dequantise.h"

namespace ibid {
namespace {

using Row = std::vector<double>;

class NaiveLlama {
 public:
  // `numbers`: those of the layers in the file; empty: 0, 1 ...
  explicit NaiveLlama(const ModelFile& file, const ModelConfig& config, std::vector<int> numbers = {})
      : c_(config), numbers_(std::move(numbers)) {
    for (int l = 0; l < c_.n_layers && std::ssize(numbers_) < c_.n_layers; ++l) numbers_.push_back(l);
    for (const TensorInfo& t : file.tensors()) {
      std::vector<float> values(static_cast<size_t>(t.view.n_elements()));
      dequantise(t.view, values.data());
      weights_[t.name] = Row(values.begin(), values.end());
    }
    if (c_.tied_embedding) weights_["output.weight"] = weights_.at("token_embd.weight");
    if (const auto norm = weights_.find("token_embd_norm.weight"); norm != weights_.end())
      weights_["output_norm.weight"] = norm->second;  // lfm2's
    inputs_.resize(static_cast<size_t>(c_.n_layers));
    states_.resize(static_cast<size_t>(c_.n_layers));
    keys_.resize(static_cast<size_t>(c_.n_layers));
    values_.resize(static_cast<size_t>(c_.n_layers));
  }

  // Appends one token to the cache and gives the logits of what follows it. `hidden`: the residual stream after each
  // layer, one Row a layer.
  Row step(TokenId token, std::vector<Row>* hidden = nullptr) {
    const auto C = static_cast<size_t>(c_.width);
    const Row& table = weights_.at("token_embd.weight");
    const auto at = static_cast<size_t>(raw(token)) * C;
    Row x(table.begin() + static_cast<std::ptrdiff_t>(at), table.begin() + static_cast<std::ptrdiff_t>(at + C));
    for (double& v : x) v *= static_cast<double>(c_.embedding_scale);
    for (size_t l = 0; l < keys_.size(); ++l) {
      const std::string p = "blk." + std::to_string(numbers_[l]) + ".";
      const LayerConfig& layer = c_.layers[l];
      const std::string second = c_.one_part_layers  ? "attn_norm"
                                 : c_.attention_gate ? "post_attention_norm"
                                                     : "ffn_norm";
      if (layer.mixer != Mixer::kNone)
        add(x, mixed(p, l, norm(x, weights_.at(p + "attn_norm.weight"))), c_.residual_scale);
      const Row f = norm(x, weights_.at(p + second + ".weight"));
      if (layer.has_ffn()) {
        add(x, layer.n_experts > 0 ? mixture(p, layer, f) : fed_forward(p + "ffn_", ".weight", 0, layer.ffn_len, f),
            c_.residual_scale);
      }
      if (hidden != nullptr) hidden->push_back(x);
    }
    n_tokens_ += 1;
    Row logits = times("output.weight", norm(x, weights_.at("output_norm.weight")));
    for (double& v : logits) v *= static_cast<double>(c_.logit_scale);
    return logits;
  }

  size_t cached(size_t layer) const { return keys_[layer].size(); }

 private:
  Row mixed(const std::string& p, size_t l, const Row& h) {
    if (c_.layers[l].mixer == Mixer::kLatent) return latent(p, l, h);
    const Recurrence kind = c_.layers[l].recurrence;
    if (c_.layers[l].mixer == Mixer::kAttention && kind == Recurrence::kMamba2) {
      Row both = through_ssm(p, l, h);
      add(both, attended(p, l, h));
      return both;
    }
    return kind == Recurrence::kShortConv  ? convolved(p, l, h)
           : kind == Recurrence::kDeltaNet ? through_delta_net(p, l, h)
           : kind == Recurrence::kMamba2   ? through_ssm(p, l, h)
                                           : attended(p, l, h);
  }
  Row attended(const std::string& p, size_t l, const Row& h) {
    const LayerConfig& layer = c_.layers[l];
    Row q = projected(p + "attn_q", h), gate;
    if (c_.attention_gate) {  // D values of each head, then D of its gate
      const auto D = static_cast<std::ptrdiff_t>(layer.key_len);
      const Row both = std::move(q);
      q.clear();
      for (auto at = both.begin(); at != both.end(); at += 2 * D) {
        q.insert(q.end(), at, at + D);
        gate.insert(gate.end(), at + D, at + 2 * D);
      }
    }
    clip(q);
    norm_heads(q, p + "attn_q_norm.weight");
    turn(q, layer, n_tokens_);
    for (double& v : q) v *= query_factor();
    if (layer.kv_owner == kOwnCache) {
      Row k = projected(p + "attn_k", h);
      Row v = layer.value_is_key ? k : projected(p + "attn_v", h);
      clip(k);
      clip(v);
      if (c_.value_norm) norm_heads(v, Row(static_cast<size_t>(layer.value_len), 1.0));
      norm_heads(k, p + "attn_k_norm.weight");
      turn(k, layer, n_tokens_);
      keys_[l].push_back(k);
      values_[l].push_back(v);
    }
    Row out = attend(q, l, layer);
    for (size_t i = 0; i < gate.size(); ++i) out[i] /= 1 + std::exp(-gate[i]);
    return projected(p + "attn_output", out);
  }
  // The last inputs, each by its tap.
  static Row convolve(const Row& taps, const std::vector<Row>& inputs) {
    const size_t C = inputs.back().size(), L = taps.size() / C;
    Row out(C);
    for (size_t back = 0; back < std::min(L, inputs.size()); ++back) {
      for (size_t c = 0; c < C; ++c) out[c] += taps[c * L + L - 1 - back] * inputs[inputs.size() - 1 - back][c];
    }
    return out;
  }
  Row through_delta_net(const std::string& p, size_t l, const Row& h) {
    const DeltaHeads& heads = c_.layers[l].delta;
    const auto Hk = static_cast<size_t>(heads.n_key_heads), Hv = static_cast<size_t>(heads.n_value_heads),
               Dk = static_cast<size_t>(heads.key_len), Dv = static_cast<size_t>(heads.value_len), r = Hv / Hk;
    inputs_[l].push_back(times(p + "attn_qkv.weight", h));
    Row qkv = convolve(weights_.at(p + "ssm_conv1d.weight"), inputs_[l]);
    for (double& v : qkv) v /= 1 + std::exp(-v);
    Row b(Hv), a(Hv);
    if (weights_.contains(p + "ssm_ba.weight")) {  // r values of each key head, b before a
      const Row ba = times(p + "ssm_ba.weight", h);
      for (size_t i = 0; i < Hv; ++i) b[i] = ba[i / r * 2 * r + i % r], a[i] = ba[i / r * 2 * r + r + i % r];
    } else {
      b = times(p + "ssm_beta.weight", h), a = times(p + "ssm_alpha.weight", h);
    }
    const Row z = times(p + "attn_gate.weight", h), &weight = weights_.at(p + "ssm_norm.weight");
    if (states_[l].empty()) states_[l].resize(Hv * Dk * Dv);
    Row out(Hv * Dv);
    for (size_t i = 0; i < Hv; ++i) {
      const size_t key = heads.tiled ? i % Hk : i / r;
      double q_sum = 1e-6, k_sum = 1e-6, squares = 0;
      const double *q = &qkv[key * Dk], *k = &qkv[(Hk + key) * Dk], *v = &qkv[2 * Hk * Dk + i * Dv];
      for (size_t d = 0; d < Dk; ++d) q_sum += q[d] * q[d], k_sum += k[d] * k[d];
      const double q_by = 1 / std::sqrt(q_sum * static_cast<double>(Dk)), k_by = 1 / std::sqrt(k_sum);
      const double decay =
          std::exp(weights_.at(p + "ssm_a")[i] * std::log1p(std::exp(a[i] + weights_.at(p + "ssm_dt.bias")[i])));
      for (size_t c = 0; c < Dv; ++c) {
        double* column = &states_[l][i * Dk * Dv + c];
        double read = 0, o = 0;
        for (size_t d = 0; d < Dk; ++d) read += k[d] * k_by * (column[d * Dv] *= decay);
        const double w = (v[c] - read) / (1 + std::exp(-b[i]));
        for (size_t d = 0; d < Dk; ++d) o += q[d] * q_by * (column[d * Dv] += k[d] * k_by * w);
        out[i * Dv + c] = o;
        squares += o * o;
      }
      const double by = 1 / std::sqrt(squares / static_cast<double>(Dv) + static_cast<double>(c_.norm_eps));
      for (size_t c = 0; c < Dv; ++c) {
        const double gate = z[i * Dv + c];
        out[i * Dv + c] *= by * weight[c] * gate / (1 + std::exp(-gate));
      }
    }
    return times(p + "ssm_out.weight", out);
  }
  Row through_ssm(const std::string& p, size_t l, const Row& h) {
    const SsmHeads& heads = c_.layers[l].ssm;
    const auto H = static_cast<size_t>(heads.n_heads), G = static_cast<size_t>(heads.n_groups),
               P = static_cast<size_t>(heads.head_len), N = static_cast<size_t>(heads.state_len), X = H * P;
    const Row in = times(p + "ssm_in.weight", h);
    const auto dt = in.end() - static_cast<std::ptrdiff_t>(H);
    inputs_[l].push_back(Row(in.begin() + static_cast<std::ptrdiff_t>(X), dt));
    Row xbc = convolve(weights_.at(p + "ssm_conv1d.weight"), inputs_[l]);
    add(xbc, weights_.at(p + "ssm_conv1d.bias"));
    for (double& v : xbc) v /= 1 + std::exp(-v);
    if (states_[l].empty()) states_[l].resize(H * P * N);
    Row out(X);
    for (size_t i = 0; i < H; ++i) {
      const size_t group = i * G / H;
      const double step = std::log1p(std::exp(dt[static_cast<std::ptrdiff_t>(i)] + weights_.at(p + "ssm_dt.bias")[i]));
      for (size_t c = 0; c < P; ++c) {
        const double x = xbc[i * P + c];
        double y = weights_.at(p + "ssm_d")[i] * x;
        for (size_t n = 0; n < N; ++n) {
          double& state = states_[l][(i * P + c) * N + n];
          state = state * std::exp(step * weights_.at(p + "ssm_a")[i]) + step * x * xbc[X + group * N + n];
          y += state * xbc[X + (G + group) * N + n];
        }
        out[i * P + c] = y;
      }
    }
    const auto gate = [&] {
      for (size_t i = 0; i < X; ++i) out[i] *= in[i] / (1 + std::exp(-in[i]));
    };
    if (c_.ssm_norm != SsmNorm::kBeforeGate) gate();
    for (size_t g = 0; g < G && c_.ssm_norm != SsmNorm::kNone; ++g) {
      const Row& weight = weights_.at(p + "ssm_norm.weight");
      const auto first = static_cast<std::ptrdiff_t>(g * X / G), last = static_cast<std::ptrdiff_t>((g + 1) * X / G);
      const Row normed =
          norm(Row(out.begin() + first, out.begin() + last), Row(weight.begin() + first, weight.begin() + last));
      std::ranges::copy(normed, out.begin() + first);
    }
    if (c_.ssm_norm == SsmNorm::kBeforeGate) gate();
    return times(p + "ssm_out.weight", out);
  }
  // Over all inputs since the sequence's begin.
  Row convolved(const std::string& p, size_t l, const Row& h) {
    const auto C = static_cast<size_t>(c_.width);
    const Row bcx = times(p + "shortconv.in_proj.weight", h);
    Row& input = inputs_[l].emplace_back(C);
    for (size_t c = 0; c < C; ++c) input[c] = bcx[c] * bcx[2 * C + c];
    Row out = convolve(weights_.at(p + "shortconv.conv.weight"), inputs_[l]);
    for (size_t c = 0; c < C; ++c) out[c] *= bcx[C + c];
    return times(p + "shortconv.out_proj.weight", out);
  }
  // With keys and values of all heads, made of what a token's row holds.
  Row latent(const std::string& p, size_t l, const Row& h) {
    const LayerConfig& layer = c_.layers[l];
    const auto H = static_cast<size_t>(layer.n_heads), R = static_cast<size_t>(layer.value_len);
    const auto plain = static_cast<size_t>(layer.plain_len), turned = static_cast<size_t>(layer.key_len) - R;
    const LayerConfig what_turns = {.key_len = static_cast<int64_t>(turned), .rope = layer.rope};
    const auto split = [&](const Row& row, size_t at, size_t n) {
      return Row(row.begin() + static_cast<std::ptrdiff_t>(at), row.begin() + static_cast<std::ptrdiff_t>(at + n));
    };
    Row q = c_.q_rank > 0 ? times(p + "attn_q_b.weight",
                                  norm(times(p + "attn_q_a.weight", h), weights_.at(p + "attn_q_a_norm.weight")))
                          : times(p + "attn_q.weight", h);
    const Row row = times(p + "attn_kv_a_mqa.weight", h);
    const Row c = norm(split(row, 0, R), weights_.at(p + "attn_kv_a_norm.weight"));
    Row shared = split(row, R, turned), keys, values = times(p + "attn_v_b.weight", c);
    turn(shared, what_turns, n_tokens_);
    const Row& k_b = weights_.at(p + "attn_k_b.weight");
    for (size_t head = 0; head < H; ++head) {
      for (size_t i = 0; i < plain; ++i) {
        double sum = 0;
        for (size_t r = 0; r < R; ++r) sum += k_b[(head * R + r) * plain + i] * c[r];
        keys.push_back(sum);
      }
      keys.insert(keys.end(), shared.begin(), shared.end());
      Row of_query = split(q, head * (plain + turned) + plain, turned);
      turn(of_query, what_turns, n_tokens_);
      std::ranges::copy(of_query, q.begin() + static_cast<std::ptrdiff_t>(head * (plain + turned) + plain));
    }
    for (double& v : q) v *= query_factor();
    keys_[l].push_back(keys);
    values_[l].push_back(values);
    const Row out = attend(q, l,
                           {.n_heads = layer.n_heads,
                            .n_kv_heads = layer.n_heads,
                            .key_len = static_cast<int64_t>(plain + turned),
                            .value_len = layer.out_len,
                            .attention_scale = layer.attention_scale,
                            .window = layer.window});
    return times(p + "attn_output.weight", out);
  }
  void clip(Row& x) const {
    const double limit = c_.qkv_clip;
    for (double& v : x) v = limit > 0 ? std::clamp(v, -limit, limit) : v;
  }
  static void add(Row& x, const Row& y, double by = 1) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += by * y[i];
  }
  Row norm(const Row& x, const Row& weight) const {
    double sum = 0;
    for (double v : x) sum += v * v;
    const double scale = 1 / std::sqrt(sum / static_cast<double>(x.size()) + c_.norm_eps);
    Row out(x.size());
    for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight[i];
    return out;
  }
  Row times(const std::string& name, const Row& x) const {
    const Row& w = weights_.at(name);
    Row out(w.size() / x.size());
    for (size_t n = 0; n < out.size(); ++n) {
      for (size_t i = 0; i < x.size(); ++i) out[n] += w[n * x.size() + i] * x[i];
    }
    return out;
  }
  // Of matrix `which` of those that a tensor holds, whose F is `len`.
  Row fed_forward(const std::string& before, const std::string& after, int32_t which, int64_t len, const Row& x) const {
    const auto C = x.size(), F = static_cast<size_t>(len);
    const auto part = [&](const char* name, size_t n_outputs, const Row& of) {
      const Row& w = weights_.at(before + name + after);
      Row out(n_outputs);
      for (size_t n = 0; n < n_outputs; ++n) {
        const size_t row = (static_cast<size_t>(which) * n_outputs + n) * of.size();
        for (size_t i = 0; i < of.size(); ++i) out[n] += w[row + i] * of[i];
      }
      const auto bias = weights_.find(before + name + after.substr(0, after.size() - 6) + "bias");
      for (size_t n = 0; bias != weights_.end() && n < n_outputs; ++n)
        out[n] += bias->second[static_cast<size_t>(which) * n_outputs + n];
      return out;
    };
    Row up = part("up", F, x);
    if (!c_.ffn_has_gate()) {
      for (double& v : up) v = v > 0 ? v * v : 0;
      return part("down", C, up);
    }
    Row gate = part("gate", F, x);
    const double limit = c_.expert_clamp;
    for (size_t i = 0; i < F; ++i) {
      double slope = 1;
      if (limit > 0 && after.starts_with("_exps")) {
        gate[i] = std::min(gate[i], limit);
        up[i] = std::clamp(up[i], -limit, limit) + 1;
        slope = 1.702;
      }
      gate[i] = gate[i] / (1 + std::exp(-slope * gate[i])) * up[i];
    }
    return part("down", C, gate);
  }
  // The experts of the highest choice, lower ones first among equals.
  std::vector<int32_t> used_experts(const Row& choice, const LayerConfig& layer) const {
    const Router& r = c_.router;
    const auto E = static_cast<size_t>(layer.n_experts), n_groups = static_cast<size_t>(r.n_groups), len = E / n_groups;
    std::vector<std::pair<double, size_t>> groups;
    for (size_t g = 0; g < n_groups; ++g) {
      Row of(choice.begin() + static_cast<std::ptrdiff_t>(g * len),
             choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * len));
      std::ranges::sort(of, std::greater());
      groups.emplace_back(-(of[0] + (len > 1 ? of[1] : 0)), g);
    }
    std::ranges::sort(groups);
    groups.resize(static_cast<size_t>(r.groups_used));
    std::vector<std::pair<double, int32_t>> ranked;
    for (const auto& [score, g] : groups) {
      for (size_t e = g * len; e < (g + 1) * len; ++e) ranked.emplace_back(-choice[e], static_cast<int32_t>(e));
    }
    std::ranges::sort(ranked);
    std::vector<int32_t> used;
    for (int64_t i = 0; i < layer.n_experts_used; ++i) used.push_back(ranked[static_cast<size_t>(i)].second);
    return used;
  }
  Row mixture(const std::string& p, const LayerConfig& layer, const Row& x) const {
    const Router& r = c_.router;
    Row scores = projected(p + "ffn_gate_inp", x);
    double sum = 0;
    const bool of_chosen = r.score == RouterScore::kChosenSoftmax;  // softmax of them: of all, then to a sum of 1
    for (double& s : scores) sum += s = r.score == RouterScore::kSigmoid ? 1 / (1 + std::exp(-s)) : std::exp(s);
    if (r.score == RouterScore::kSoftmax) {
      for (double& s : scores) s /= sum;
    }
    Row choice = scores;
    if (c_.router_bias) add(choice, weights_.at(p + "exp_probs_b.bias"));
    const std::vector<int32_t> used = used_experts(choice, layer);
    double by = 0;
    for (const int32_t e : used) by += scores[static_cast<size_t>(e)];
    const Row latent = c_.expert_latent_len > 0 ? times(p + "ffn_latent_down.weight", x) : x;
    Row out(latent.size());
    for (const int32_t e : used) {
      const double weight =
          scores[static_cast<size_t>(e)] / (r.normalises || of_chosen ? by : 1) * static_cast<double>(r.scale);
      Row y = fed_forward(p + "ffn_", "_exps.weight", e, layer.expert_len, latent);
      for (double& v : y) v *= weight;
      add(out, y);
    }
    if (c_.expert_latent_len > 0) out = times(p + "ffn_latent_up.weight", out);
    if (layer.ffn_len == 0) return out;
    Row shared = fed_forward(p + "ffn_", "_shexp.weight", 0, layer.ffn_len, x);
    if (c_.shared_gate) {
      const double gate = times(p + "ffn_gate_inp_shexp.weight", x)[0];
      for (double& v : shared) v /= 1 + std::exp(-gate);
    }
    add(out, shared);
    return out;
  }
  Row projected(const std::string& name, const Row& x) const {
    Row out = times(name + ".weight", x);
    if (const auto bias = weights_.find(name + ".bias"); bias != weights_.end()) add(out, bias->second);
    return out;
  }
  void norm_heads(Row& heads, const std::string& name) const {
    if (const auto weight = weights_.find(name); weight != weights_.end()) norm_heads(heads, weight->second);
  }
  void norm_heads(Row& heads, const Row& weight) const {
    Row head(weight.size());
    for (size_t at = 0; at < heads.size(); at += head.size()) {
      std::copy_n(&heads[at], head.size(), head.begin());
      const Row normed = norm(head, weight);
      std::ranges::copy(normed, &heads[at]);
    }
  }
  double query_factor() const {
    if (c_.query_scale == 0) return 1;
    const double n = std::floor(n_tokens_ / static_cast<double>(c_.query_scale_len));
    return 1 + static_cast<double>(c_.query_scale) * std::log(1 + n);
  }
  // A pair is (2 i, 2 i + 1), as in GGUF's llama, or (i, i + n).
  void turn(Row& heads, const LayerConfig& layer, double position) const {
    if (layer.rope == kNoRope) return;
    const RopeConfig& rope = c_.ropes[static_cast<size_t>(layer.rope)];
    const auto D = static_cast<size_t>(layer.key_len), n = static_cast<size_t>(rope.n_pairs);
    for (size_t head = 0; head < heads.size(); head += D) {
      for (size_t i = 0; i < n; ++i) {
        const double angle =
            position * std::pow(rope.base, -static_cast<double>(i) / static_cast<double>(n)) / rope.factor;
        double &a = heads[head + (rope.interleaved ? 2 * i : i)],
               &b = heads[head + (rope.interleaved ? 2 * i + 1 : i + n)];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = turned;
      }
    }
  }
  Row attend(const Row& q, size_t l, const LayerConfig& layer) const {
    const size_t own = layer.kv_owner == kOwnCache ? l : static_cast<size_t>(layer.kv_owner);
    const auto Dk = static_cast<size_t>(layer.key_len), Dv = static_cast<size_t>(layer.value_len);
    const auto H = static_cast<size_t>(layer.n_heads), window = static_cast<size_t>(layer.window);
    const size_t group = H / static_cast<size_t>(layer.n_kv_heads), n = keys_[own].size();
    const size_t first = window > 0 && n > window ? n - window : 0;
    Row out(H * Dv);
    for (size_t h = 0; h < H; ++h) {
      Row p;
      double highest = -INFINITY, sum = 0;
      for (size_t t = first; t < n; ++t) {
        double score = 0;
        for (size_t i = 0; i < Dk; ++i) score += q[h * Dk + i] * keys_[own][t][h / group * Dk + i];
        const double distance = static_cast<double>(n - 1) - static_cast<double>(t);
        p.push_back(score * static_cast<double>(layer.attention_scale) - slope(h, H) * distance);
        highest = std::fmax(highest, p.back());
      }
      const auto sinks = weights_.find("blk." + std::to_string(numbers_[l]) + ".attn_sinks.weight");
      for (double& s : p) sum += s = std::exp(s - highest);
      if (sinks != weights_.end()) sum += std::exp(sinks->second[h] - highest);
      for (size_t t = first; t < n; ++t) {
        for (size_t i = 0; i < Dv; ++i) out[h * Dv + i] += p[t - first] / sum * values_[own][t][h / group * Dv + i];
      }
    }
    return out;
  }

  // Of the heads up to a power of two 2^-a, 2^-2a ... 2^-bias_max; the others have every second one of as many again,
  // between them.
  double slope(size_t h, size_t H) const {
    if (c_.alibi_bias_max == 0) return 0;
    size_t P = 1;
    while (2 * P <= H) P *= 2;
    const double a = static_cast<double>(c_.alibi_bias_max) / static_cast<double>(P);
    return std::exp2(h < P ? -a * static_cast<double>(h + 1) : -a / 2 * static_cast<double>(2 * (h - P) + 1));
  }

  const ModelConfig& c_;
  std::vector<int> numbers_;  // of the file's layers
  double n_tokens_ = 0;
  std::map<std::string, Row> weights_;
  std::vector<std::vector<Row>> inputs_;         // of each convolution
  std::vector<Row> states_;                      // of each delta net
  std::vector<std::vector<Row>> keys_, values_;  // [layer][position][K D]: the list cache
};

template <typename Values>
int32_t highest(const Values& values, size_t n) {
  size_t best = 0;
  for (size_t i = 1; i < n; ++i) best = values[i] > values[best] ? i : best;
  return static_cast<int32_t>(best);
}

TEST(NaiveReference, ChoosesTheTokensOfTheModelGreedily) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const auto file = testing::tiny_model_file({.architecture = "llama", .seed = seed});
    testing::LoadedModel m(file);
    NaiveLlama naive(*file, m.model->config());
    OneSequence sequence(*m.model, *m.stream, {.kv_dtype = DType::kF32, .capacity = 80});
    const auto V = static_cast<size_t>(m.model->config().vocab_size);
    std::vector<TokenId> mine = testing::some_tokens(16, static_cast<int64_t>(V), seed), theirs = mine;
    Row expected;
    for (TokenId id : theirs) expected = naive.step(id);
    std::span<const TokenId> next = mine;
    while (mine.size() < 64) {
      std::vector<float> last;
      sequence.append(next, [&](int64_t, const TensorView& rows) {
        const float* row = rows.row_as<const float>(rows.dim[0] - 1);
        last.assign(row, row + V);
      });
      for (size_t i = 0; i < V; ++i) ASSERT_NEAR(last[i], expected[i], 2e-4) << "token " << mine.size();
      mine.push_back(TokenId{highest(last, V)});
      theirs.push_back(TokenId{highest(expected, V)});
      ASSERT_EQ(mine, theirs);
      expected = naive.step(theirs.back());
      next = std::span(mine).last(1);
    }
    EXPECT_EQ(naive.cached(0), mine.size());
    EXPECT_EQ(sequence.n_tokens(), static_cast<int64_t>(mine.size()) - 1);
  }
}

TEST(NaiveReference, HasTheHiddenStatesThatTheModelHandsOut) {
  const auto file = testing::tiny_model_file({.architecture = "llama", .seed = 4});
  testing::LoadedModel m(file);
  NaiveLlama naive(*file, m.model->config());
  const auto C = static_cast<size_t>(m.model->config().width);
  const std::vector<TokenId> tokens = testing::some_tokens(12, m.model->config().vocab_size, 4);
  const std::vector<int32_t> layers = {0, 1}, rows = {11};
  const testing::StepOutput out = testing::BatchOfOne(*m.model, *m.stream).step(tokens, rows, layers);
  for (size_t t = 0; t < tokens.size(); ++t) {
    std::vector<Row> expected;
    naive.step(tokens[t], &expected);
    for (size_t l = 0; l < layers.size(); ++l) {
      for (size_t i = 0; i < C; ++i) {
        ASSERT_NEAR(out.hidden[l][t * C + i], expected[l][i], 2e-4) << "token " << t << ", layer " << l;
      }
    }
  }
}

std::vector<float> logits_of(Model& model, Stream& s, std::span<const TokenId> tokens,
                             const OneSequenceOptions& options = {.kv_dtype = DType::kF32}, int64_t max_step = 0) {
  OneSequence sequence(model, s, options);
  std::vector<float> out;
  sequence.append(
      tokens,
      [&out](int64_t, const TensorView& rows) {
        out.insert(out.end(), rows.row_as<float>(0), rows.row_as<float>(0) + rows.n_elements());
      },
      max_step);
  return out;
}

void expect_near(const std::vector<float>& got, NaiveLlama& naive, std::span<const TokenId> tokens) {
  size_t at = 0;
  for (const TokenId token : tokens) {
    for (const double x : naive.step(token)) {
      ASSERT_NEAR(got[at], x, 3e-4) << "logit " << at;
      ++at;
    }
  }
  EXPECT_EQ(at, got.size());
}

TEST(NaiveReference, HasTheLogitsOfLayersThatDifferInAllSizes) {
  ThreadTeam team(2);
  Stream s(team);
  for (const bool with_norms : {false, true}) {
    const testing::MixedOptions options = {.seed = 5, .with_norms = with_norms};
    const auto file = testing::mixed_file(options);
    const std::unique_ptr<Model> model = testing::mixed_model(s, options);
    const std::vector<TokenId> tokens = testing::some_tokens(40, model->config().vocab_size);
    NaiveLlama naive(*file, model->config());
    expect_near(logits_of(*model, s, tokens), naive, tokens);
    EXPECT_EQ(naive.cached(3), 0U) << "the second layer's";
  }
}

TEST(NaiveReference, HasTheLogitsOfModelsWithExperts) {
  for (const char* architecture : {"qwen3moe", "qwen2moe", "glm4moe", "gpt_oss"}) {
    SCOPED_TRACE(architecture);
    const auto file = testing::tiny_model_file({.architecture = architecture, .seed = 2});
    testing::LoadedModel m(file);
    const std::vector<TokenId> tokens = testing::some_tokens(24, m.model->config().vocab_size);
    NaiveLlama naive(*file, m.model->config());
    expect_near(logits_of(*m.model, *m.stream, tokens), naive, tokens);
  }
}

TEST(NaiveReference, HasTheLogitsOfModelsWithRecurrentLayers) {
  for (const char* architecture :
       {"lfm2", "qwen35", "qwen3next", "granitehybrid", "nemotron_h", "nemotron_h_moe", "falcon_h1"}) {
    SCOPED_TRACE(architecture);
    const auto file = testing::tiny_model_file({.architecture = architecture, .seed = 2, .n_layers = 5});
    testing::LoadedModel m(file);
    const std::vector<TokenId> tokens = testing::some_tokens(24, m.model->config().vocab_size);
    NaiveLlama naive(*file, m.model->config());
    expect_near(logits_of(*m.model, *m.stream, tokens), naive, tokens);
  }
}

// GGUF has no key for the order of a state space's gate and norm, nor for factors of products.
TEST(NaiveReference, HasTheLogitsOfEachOrderOfGateAndNorm) {
  ThreadTeam team(1);
  Stream s(team);
  for (const SsmNorm norm : {SsmNorm::kNone, SsmNorm::kBeforeGate, SsmNorm::kAfterGate}) {
    const testing::TinyModelOptions options = {.architecture = "falcon_h1", .seed = 3};
    ModelConfig config = testing::tiny_config(options);
    config.ssm_norm = norm;
    const auto file = testing::tiny_file_of(config, options);
    const auto model = load_model(file, config, {.step_tokens = 64, .max_rows = 64}, s);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const std::vector<TokenId> tokens = testing::some_tokens(24, config.vocab_size);
    NaiveLlama naive(*file, config);
    expect_near(logits_of(**model, s, tokens), naive, tokens);
  }
}

// A feed-forward as a model's last part keeps the rows that are wanted alone.
TEST(RecurrentLayers, OneRowOfAStepHasTheBitsOfAll) {
  for (const char* architecture : {"nemotron_h", "nemotron_h_moe", "falcon_h1"}) {
    testing::LoadedModel m(testing::TinyModelOptions{.architecture = architecture});
    const std::vector<TokenId> tokens = testing::some_tokens(20, m.model->config().vocab_size);
    std::vector<int32_t> all(20);
    std::iota(all.begin(), all.end(), 0);
    const std::vector<int32_t> rows = {3, 19};
    const std::vector<float> of_all = testing::BatchOfOne(*m.model, *m.stream).step(tokens, all, {}).logits,
                             of_rows = testing::BatchOfOne(*m.model, *m.stream).step(tokens, rows, {}).logits;
    const auto V = static_cast<size_t>(m.model->config().vocab_size);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto at = static_cast<size_t>(rows[i]) * V;
      EXPECT_EQ(std::memcmp(&of_rows[i * V], &of_all[at], V * sizeof(float)), 0) << architecture;
    }
  }
}

// Row M2: queries and outputs that have the up-projections of keys and values in them give what expanded keys and
// values give.
TEST(NaiveReference, HasTheLogitsOfLatentAttention) {
  for (const int64_t q_rank : {64, 0}) {
    ModelConfig config = testing::tiny_config({.architecture = "deepseek2"});
    config.q_rank = q_rank;
    if (q_rank != 0) config.query_scale = 0.5f, config.query_scale_len = 8;  // as of mistral large 3
    const auto file = testing::tiny_file_of(config, {.architecture = "deepseek2", .seed = 2});
    testing::LoadedModel m(file);
    const std::vector<TokenId> tokens = testing::some_tokens(40, m.model->config().vocab_size);
    NaiveLlama naive(*file, m.model->config());
    expect_near(logits_of(*m.model, *m.stream, tokens), naive, tokens);
  }
}

// The last layer's state goes on too where no row of a step is wanted.
TEST(RecurrentLayers, GoOnInStepsWithoutRows) {
  for (const char* architecture : {"lfm2", "qwen35", "granitehybrid"}) {
    testing::LoadedModel m(testing::TinyModelOptions{.architecture = architecture});
    ASSERT_EQ(m.model->config().layers.back().mixer, Mixer::kState);
    const std::vector<TokenId> tokens = testing::some_tokens(20, m.model->config().vocab_size);
    const std::vector<float> all = m.logits(tokens);
    OneSequence sequence(*m.model, *m.stream, {});
    sequence.append(std::span(tokens).first(11), nullptr);
    sequence.append(std::span(tokens).subspan(11), [&](int64_t first, const TensorView& rows) {
      const auto n = static_cast<size_t>(rows.n_elements());
      EXPECT_EQ(std::memcmp(rows.data, &all[all.size() - n], n * sizeof(float)), 0) << first;
    });
  }
}

// Queries that grow with their position; values that are products of the keys' weights, and have a norm.
TEST(NaiveReference, HasTheLogitsOfScaledQueriesAndOfValuesOfKeys) {
  ThreadTeam team(1);
  Stream s(team);
  const testing::TinyModelOptions options = {.architecture = "qwen3", .seed = 7, .n_layers = 3};
  ModelConfig config = testing::tiny_config(options);
  config.query_scale = 0.5f;
  config.query_scale_len = 8;
  config.value_norm = true;
  config.layers[1].value_is_key = true;
  const auto file = testing::tiny_file_of(config, options);
  const auto model = load_model(file, config, {.step_tokens = 64, .max_rows = 64}, s);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const std::vector<TokenId> tokens = testing::some_tokens(40, config.vocab_size);
  NaiveLlama naive(*file, (*model)->config());
  expect_near(logits_of(**model, s, tokens), naive, tokens);
}

// Row C8: scores by the distance of key and query, in heads whose number is a power of two or not; and a clip of what
// is projected.
TEST(NaiveReference, HasTheLogitsOfSlopesOfHeads) {
  ThreadTeam team(1);
  Stream s(team);
  for (const int64_t n_heads : {4, 6, 7}) {
    const testing::TinyModelOptions options = {.architecture = "llama", .seed = 8, .n_layers = 2};
    ModelConfig config = testing::tiny_config(options);
    config.alibi_bias_max = n_heads == 7 ? 6.0f : 8.0f;
    config.qkv_clip = 1.5f;
    config.ropes.clear();
    for (LayerConfig& layer : config.layers) {
      layer.rope = kNoRope;
      layer.n_heads = n_heads;
      layer.n_kv_heads = n_heads == 7 ? 7 : 2;
    }
    const auto file = testing::tiny_file_of(config, options);
    const auto model = load_model(file, config, {.step_tokens = 128, .max_rows = 128}, s);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const std::vector<TokenId> tokens = testing::some_tokens(100, config.vocab_size);
    NaiveLlama naive(*file, (*model)->config());
    expect_near(logits_of(**model, s, tokens), naive, tokens);
  }
}

// Rows V10 and V11: neighbours share a cache, or groups of four layers do.
TEST(SharedCaches, HaveTheReferencesLogitsAndAPartOfTheMemory) {
  ThreadTeam team(1);
  Stream s(team);
  for (const int32_t factor : {2, 4}) {
    const testing::TinyModelOptions options = {.architecture = "llama", .seed = 6, .n_layers = 4};
    ModelConfig config = testing::tiny_config(options);
    const auto kv_bytes = [](const ModelConfig& c) {
      std::vector<KvGeometry> layers;
      for (int l = 0; l < c.n_layers; ++l) layers.push_back(kv_geometry(c, l));
      return kv_block_bytes(kv_layouts(layers, DType::kF16, 16));
    };
    const int64_t whole = kv_bytes(config);
    for (int32_t l = 0; l < 4; ++l)
      config.layers[static_cast<size_t>(l)].kv_owner = l % factor == 0 ? kOwnCache : l - l % factor;
    EXPECT_EQ(factor * kv_bytes(config), whole);
    const auto file = testing::tiny_file_of(config, options);
    const auto model = load_model(file, config, {.step_tokens = 64, .max_rows = 64}, s);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const std::vector<TokenId> tokens = testing::some_tokens(24, config.vocab_size);
    NaiveLlama naive(*file, (*model)->config());
    expect_near(logits_of(**model, s, tokens), naive, tokens);
  }
}

void expect_bits_of_any_steps(std::initializer_list<const char*> architectures) {
  for (const char* architecture : architectures) {
    for (const DType dtype : {DType::kF16, DType::kQ8_0, DType::kBF16}) {
      const auto file = testing::tiny_model_file({.architecture = architecture, .dtype = dtype});
      testing::LoadedModel one(file), three(file, {.step_tokens = 128, .max_rows = 128}, 3);
      const std::vector<TokenId> tokens = testing::some_tokens(100, one.model->config().vocab_size);
      const std::vector<float> whole = logits_of(*one.model, *one.stream, tokens);
      for (const int64_t step : {1, 7, 64}) {
        EXPECT_EQ(whole, logits_of(*three.model, *three.stream, tokens, {.kv_dtype = DType::kF32}, step))
            << architecture << ", " << traits(dtype).name << ", steps of " << step;
      }
    }
  }
}

// A token's experts and its row's bits do not depend on the other tokens of the step.
TEST(Experts, BitsDependOnNeitherStepsNorThreads) {
  expect_bits_of_any_steps({"qwen3moe", "qwen2moe", "glm4moe", "gpt_oss", "deepseek2"});
}

// Row C8: nor does what a score loses by the distance of its key.
TEST(Slopes, OfHeadsGiveBitsThatDependOnNeitherStepsNorThreads) { expect_bits_of_any_steps({"bloom", "mpt"}); }

TEST(MixedLayers, BitsDependOnNeitherStepsNorBlocksNorThreads) {
  ThreadTeam one(1), three(3);
  Stream s1(one), s3(three);
  const testing::MixedOptions options = {.dtype = DType::kF16, .with_norms = true};
  const std::unique_ptr<Model> model = testing::mixed_model(s1, options), other = testing::mixed_model(s3, options);
  const std::vector<TokenId> tokens = testing::some_tokens(70, model->config().vocab_size);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::vector<float> whole = logits_of(*model, s1, tokens, {.kv_dtype = dtype});
    for (const int32_t block_len : {8, 16, 32}) {
      for (const int64_t step : {1, 7, 64}) {
        const OneSequenceOptions cache = {.kv_dtype = dtype, .block_len = block_len, .backwards = true};
        EXPECT_EQ(whole, logits_of(*other, s3, tokens, cache, step)) << block_len << " " << step;
      }
    }
  }
}

// Steps that want no logits end in the last layer, here one without keys and values of its own.
TEST(MixedLayers, StepsWithoutRowsKeepWhatLaterOnesRead) {
  ThreadTeam team(1);
  Stream s(team);
  const std::unique_ptr<Model> model = testing::mixed_model(s);
  const std::vector<TokenId> tokens = testing::some_tokens(30, model->config().vocab_size);
  const std::vector<float> whole = logits_of(*model, s, tokens);
  OneSequence sequence(*model, s, {.kv_dtype = DType::kF32});
  sequence.append(std::span(tokens).first(29), {});
  sequence.append(std::span(tokens).last(1), [&](int64_t, const TensorView& rows) {
    const auto n = static_cast<size_t>(rows.n_elements());
    EXPECT_EQ(0, std::memcmp(rows.data, whole.data() + whole.size() - n, n * sizeof(float)));
  });
}

TEST(MixedLayers, TheCacheHasRoomForWhatEachLayerKeepsAndNoMore) {
  ThreadTeam team(1);
  Stream s(team);
  const std::unique_ptr<Model> model = testing::mixed_model(s);
  const OneSequence sequence(*model, s, {.kv_dtype = DType::kF16, .block_len = 16, .capacity = 64});
  const std::vector<PagedKv>& kv = sequence.kv();
  EXPECT_EQ(kv[3].blocks, kv[1].blocks);
  EXPECT_EQ(kv[5].blocks, kv[0].blocks);
  EXPECT_EQ(sequence.kv_bytes(), 64 + 64 * 2 * (2 * 32 + 1 * 64 + 3 * 16 + 4 * 48));
  int64_t n_parameters = 0;
  const std::shared_ptr<const ModelFile> file = testing::mixed_file();
  for (const TensorInfo& t : file->tensors()) n_parameters += t.view.n_elements();
  EXPECT_EQ(model->config().n_parameters(), n_parameters);
}

TEST(MixedLayers, AnOwnerOfACacheIsLeftOutWithItsReadersAlone) {
  ThreadTeam team(1);
  Stream s(team);
  const std::unique_ptr<Model> model = testing::mixed_model(s);
  const ModelOptions limits = {.step_tokens = 64, .max_rows = 64};
  const std::vector<int32_t> owner = {1}, before = {0, 2, 5};
  const auto refused = model_without(*model, owner, limits, s);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("layer 3 reads the keys and values of layer 1"), std::string::npos);
  const auto part = model_without(*model, before, limits, s);
  ASSERT_TRUE(part.ok()) << part.error().message;
  EXPECT_EQ((*part)->config().layers[1].kv_owner, 0);
  const auto file = testing::mixed_file();
  NaiveLlama naive(*file, (*part)->config(), {1, 3, 4});
  const std::vector<TokenId> tokens = testing::some_tokens(20, model->config().vocab_size);
  expect_near(logits_of(**part, s, tokens), naive, tokens);
}

}  // namespace
}  // namespace ibid
