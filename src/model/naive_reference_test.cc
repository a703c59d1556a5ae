// Row C5: the whole of a language model as plain loops over growing lists, in double precision, one token at a time.
// It shares no code with the forward pass, and the two must choose the same tokens.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "model/testing/batch_of_one.h"
#include "model/testing/loaded_model.h"
#include "tensor/dequantise.h"

namespace ibid {
namespace {

using Row = std::vector<double>;

class NaiveLlama {
 public:
  explicit NaiveLlama(const ModelFile& file, const ModelConfig& config) : c_(config) {
    for (const TensorInfo& t : file.tensors()) {
      std::vector<float> values(static_cast<size_t>(t.view.n_elements()));
      dequantise(t.view, values.data());
      weights_[t.name] = Row(values.begin(), values.end());
    }
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
    for (size_t l = 0; l < keys_.size(); ++l) {
      const std::string p = "blk." + std::to_string(l) + ".";
      const Row h = norm(x, weights_.at(p + "attn_norm.weight"));
      Row q = times(p + "attn_q.weight", h), k = times(p + "attn_k.weight", h), v = times(p + "attn_v.weight", h);
      const double position = static_cast<double>(keys_[l].size());
      turn(q, position);
      turn(k, position);
      keys_[l].push_back(k);
      values_[l].push_back(v);
      add(x, times(p + "attn_output.weight", attend(q, l)));
      const Row f = norm(x, weights_.at(p + "ffn_norm.weight"));
      Row gate = times(p + "ffn_gate.weight", f);
      const Row up = times(p + "ffn_up.weight", f);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      add(x, times(p + "ffn_down.weight", gate));
      if (hidden != nullptr) hidden->push_back(x);
    }
    return times("output.weight", norm(x, weights_.at("output_norm.weight")));
  }

  size_t cached(size_t layer) const { return keys_[layer].size(); }

 private:
  static void add(Row& x, const Row& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
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
  // GGUF's llama: neighbours (2 i, 2 i + 1) are a pair.
  void turn(Row& heads, double position) const {
    const auto D = static_cast<size_t>(c_.head_len);
    for (size_t at = 0; at < heads.size(); at += 2) {
      const double angle = position * std::pow(10000.0, -static_cast<double>(at % D) / static_cast<double>(D));
      const double a = heads[at], b = heads[at + 1];
      heads[at] = a * std::cos(angle) - b * std::sin(angle);
      heads[at + 1] = a * std::sin(angle) + b * std::cos(angle);
    }
  }
  Row attend(const Row& q, size_t l) const {
    const auto D = static_cast<size_t>(c_.head_len), H = static_cast<size_t>(c_.n_heads);
    const size_t group = H / static_cast<size_t>(c_.n_kv_heads);
    Row out(q.size());
    for (size_t h = 0; h < H; ++h) {
      const size_t kv = h / group * D;
      Row p;
      double highest = -INFINITY, sum = 0;
      for (const Row& k : keys_[l]) {
        double score = 0;
        for (size_t i = 0; i < D; ++i) score += q[h * D + i] * k[kv + i];
        p.push_back(score / std::sqrt(static_cast<double>(D)));
        highest = std::fmax(highest, p.back());
      }
      for (double& s : p) sum += s = std::exp(s - highest);
      for (size_t t = 0; t < p.size(); ++t) {
        for (size_t i = 0; i < D; ++i) out[h * D + i] += p[t] / sum * values_[l][t][kv + i];
      }
    }
    return out;
  }

  const ModelConfig& c_;
  std::map<std::string, Row> weights_;
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

}  // namespace
}  // namespace ibid
