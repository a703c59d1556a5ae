// Draft heads: their logits equal the formula, under each spelling of their files; files that do not match the model
// are rejected by name; and the proposer reads the formula's state and tokens.
#include "spec/heads/draft_heads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <regex>

#include "model/blocks.h"
#include "model/testing/loaded_model.h"
#include "sample/sampler.h"
#include "spec/heads/heads_proposer.h"
#include "tensor/dequantise.h"
#include "tiny_heads.h"

namespace ibid {
namespace {

using testing::HeadNames;
using testing::LoadedModel;
using testing::TinyHeads;

std::vector<double> floats(const TensorView& view, int64_t row = 0) {
  std::vector<float> out(static_cast<size_t>(view.row_len()));
  dequantise_row(view.dtype, view.row(row), out.data(), view.row_len());
  return {out.begin(), out.end()};
}

// y = W x + b by the letter.
std::vector<double> product(const ModelFile& file, const std::string& name, const std::vector<double>& x) {
  const TensorView w = file.tensor(name + ".weight").value();
  std::vector<double> y(static_cast<size_t>(w.dim[0]), 0);
  if (const TensorInfo* bias = file.find(name + ".bias")) y = floats(bias->view);
  for (size_t n = 0; n < y.size(); ++n) {
    const std::vector<double> row = floats(w, static_cast<int64_t>(n));
    for (size_t k = 0; k < x.size(); ++k) y[n] += row[k] * x[k];
  }
  return y;
}

// The logits of a head as the papers write them.
std::vector<double> said(const TinyHeads& o, const ModelFile& file, const Model& target, int64_t head,
                         const std::vector<float>& hidden, std::span<const TokenId> following) {
  std::vector<double> x(hidden.begin(), hidden.end());
  for (int64_t i = 0; o.is_grounded && i <= head; ++i) {
    const auto e = floats(target.vocabulary()->embedding.raw, raw(following[static_cast<size_t>(i)]));
    x.insert(x.end(), e.begin(), e.end());
  }
  for (int64_t j = 0; j < o.n_layers; ++j) {
    const std::string skip = head_name(o, head, j, "skip");
    std::vector<double> next = file.find(skip + ".weight") && j == 0 && o.is_grounded ? product(file, skip, x) : x;
    const std::vector<double> y = product(file, head_name(o, head, j, "linear"), x);
    for (size_t c = 0; c < next.size(); ++c) next[c] += y[c] / (1 + std::exp(-y[c]));
    x = next;
  }
  if (o.has_outputs) return product(file, head_name(o, head, 0, "output"), x);
  std::vector<double> logits;
  const TensorView& rows = target.vocabulary()->output.weight.raw;
  for (int64_t n = 0; n < (o.ids.empty() ? o.vocab_size : std::ssize(o.ids)); ++n) {
    const auto row = floats(rows, o.ids.empty() ? n : o.ids[static_cast<size_t>(n)]);
    double sum = 0;
    for (size_t c = 0; c < x.size(); ++c) sum += row[c] * x[c];
    logits.push_back(sum);
  }
  return logits;
}

std::vector<float> some_hidden(int64_t width, uint64_t seed) {
  std::vector<float> out;
  for (const TokenId t : testing::some_tokens(width, 1000, seed))
    out.push_back(static_cast<float>(raw(t)) / 500.0F - 1);
  return out;
}

TinyHeads heads_for(const LoadedModel& m) {
  return {.width = m.model->config().width, .vocab_size = m.model->config().vocab_size};
}

TEST(DraftHeads, PredictWhatTheFormulaGives) {
  LoadedModel m(testing::TinyModelOptions{});
  std::vector<TinyHeads> all(5, heads_for(m));
  all[1] = {.width = all[0].width, .vocab_size = 96, .n_heads = 3, .n_layers = 3, .ids = {0, 3, 7, 8, 40, 95}};
  all[2] = {.width = all[0].width, .vocab_size = 96, .has_outputs = true, .names = HeadNames::kHydra};
  all[3] = {.width = all[0].width,
            .vocab_size = 96,
            .n_heads = 4,
            .n_layers = 1,
            .is_grounded = false,
            .has_outputs = true,
            .names = HeadNames::kMedusa};
  all[4] = {.width = all[0].width, .vocab_size = 96, .n_layers = 3, .is_grounded = false, .ids = {1, 2, 50}};
  for (const TinyHeads& o : all) {
    const auto file = tiny_heads_file(o);
    auto heads = DraftHeads::load(file, *m.model, *m.stream, 4);
    ASSERT_TRUE(heads.ok()) << heads.error().message;
    EXPECT_EQ((*heads)->n_heads(), o.n_heads);
    const auto following = testing::some_tokens(8, o.vocab_size, 5);
    for (const int32_t row : {1, 3}) (*heads)->set_hidden(row, some_hidden(o.width, static_cast<uint64_t>(row)));
    for (int32_t i = 0; i < o.n_heads; ++i) {
      for (const int32_t row : {1, 3}) (*heads)->add_token(row, i, following[static_cast<size_t>(i + row)]);
      const std::vector<int32_t> rows = {3, 1};
      const std::span<const float> logits = (*heads)->run(i, rows);
      for (size_t r = 0; r < 2; ++r) {
        const auto tokens = std::span(following).subspan(static_cast<size_t>(rows[r]));
        const auto expected = said(o, *file, *m.model, i, some_hidden(o.width, static_cast<uint64_t>(rows[r])), tokens);
        ASSERT_EQ(logits.size(), 2 * expected.size());
        for (size_t n = 0; n < expected.size(); ++n)
          EXPECT_NEAR(logits[r * expected.size() + n], expected[n], 1e-4 * (1 + std::abs(expected[n])))
              << i << " " << n;
      }
    }
  }
}

// A copy whose tensors and keys a test may change; `file` outlives it.
std::shared_ptr<const ModelFile> changed(const ModelFile& file, const std::map<std::string, MetaValue>& keys,
                                         const std::function<std::string(std::string)>& renamed = {}) {
  ModelFile::Parts parts;
  parts.path = file.path();
  parts.tensors = file.tensors();
  parts.metadata = file.metadata();
  for (const auto& [key, value] : keys) parts.metadata[key] = value;
  for (TensorInfo& t : parts.tensors) t.name = renamed ? renamed(t.name) : t.name;
  return std::make_shared<const ModelFile>(std::move(parts));
}

// Between two layers of which Hydra's programs may have a dropout, which counts.
TEST(DraftHeads, AreFoundAfterDropouts) {
  LoadedModel m(testing::TinyModelOptions{});
  const TinyHeads o = {
      .width = m.model->config().width, .vocab_size = 96, .has_outputs = true, .names = HeadNames::kHydra};
  const auto plain = tiny_heads_file(o);
  const auto following = changed(*plain, {{"hydra_num_layers", int64_t{2}}}, [](std::string name) {
    name = std::regex_replace(name, std::regex(R"(^(hydra_mlp\.\d+)\.1\.)"), "$1.3.");
    name = std::regex_replace(name, std::regex(R"(^(hydra_mlp\.\d+)\.0\.)"), "$1.1.");
    name = std::regex_replace(name, std::regex(R"(^(hydra_lm_head\.\d+)\.)"), "$1.1.");
    return name;
  });
  std::vector<float> said[2];
  for (const auto& [file, out] : {std::pair(plain, &said[0]), std::pair(following, &said[1])}) {
    auto heads = DraftHeads::load(file, *m.model, *m.stream, 1);
    ASSERT_TRUE(heads.ok()) << heads.error().message;
    (*heads)->set_hidden(0, some_hidden(o.width, 1));
    (*heads)->add_token(0, 0, TokenId{5});
    const int32_t row = 0;
    const std::span<const float> logits = (*heads)->run(0, {&row, 1});
    out->assign(logits.begin(), logits.end());
  }
  EXPECT_EQ(said[0], said[1]);
}

TEST(DraftHeads, OfAnotherModelAreRefusedByName) {
  LoadedModel m(testing::TinyModelOptions{});
  const auto refused = [&](const TinyHeads& o) -> std::string {
    const auto heads = DraftHeads::load(tiny_heads_file(o), *m.model, *m.stream, 4);
    EXPECT_FALSE(DraftHeads::sized_bytes(*tiny_heads_file(o), *m.model, *m.stream, 4).ok() || heads.ok());
    return heads ? "" : heads.error().message;
  };
  TinyHeads o = heads_for(m);
  o.width *= 2;
  EXPECT_NE(refused(o).find("head.0.blk.0.linear.weight"), std::string::npos) << refused(o);
  o = heads_for(m);
  o.left_out = "head.0.blk.0.skip.weight";
  EXPECT_NE(refused(o).find("changes the width"), std::string::npos) << refused(o);
  o.left_out = "head.1.blk.1.linear.weight";
  EXPECT_NE(refused(o).find("no linear part"), std::string::npos) << refused(o);
  for (const std::vector<int64_t>& ids : {std::vector<int64_t>{3, 3}, {5, 4}, {-1, 2}, {0, 96}}) {
    o = heads_for(m);
    o.ids = ids;
    EXPECT_NE(refused(o).find("token_ids"), std::string::npos) << refused(o);
  }
  EXPECT_FALSE(DraftHeads::load(testing::tiny_model_file({}), *m.model, *m.stream, 4).ok());
  for (const auto& [key, value] : std::map<std::string, MetaValue>{{"hydra_head_arch", std::string("prefix-mlp")},
                                                                   {"hidden_state_offset", int64_t{1}},
                                                                   {"hydra_num_layers", int64_t{3}},
                                                                   {"medusa_num_layers", int64_t{1}}}) {
    const auto plain = tiny_heads_file(heads_for(m));
    const auto heads = DraftHeads::load(changed(*plain, {{key, value}}), *m.model, *m.stream, 4);
    ASSERT_FALSE(heads.ok()) << key;
    EXPECT_EQ(heads.error().where, key) << heads.error().message;
  }
  o = heads_for(m);
  EXPECT_GT(DraftHeads::sized_bytes(*tiny_heads_file(o), *m.model, *m.stream, 4).value(), 4 * o.width * o.width);
}

TEST(DraftHeads, OfOtherTypesTwiceOrInPartsAreRefusedByName) {
  LoadedModel m(testing::TinyModelOptions{});
  const TinyHeads o = heads_for(m);
  const auto made = tiny_heads_file(o);
  const auto refused = [&](auto change) -> std::string {
    ModelFile::Parts parts;
    parts.path = made->path();
    parts.tensors = made->tensors();
    parts.metadata = made->metadata();
    change(parts);
    const auto heads = DraftHeads::load(std::make_shared<const ModelFile>(std::move(parts)), *m.model, *m.stream, 4);
    return heads ? "" : heads.error().message;
  };
  EXPECT_EQ(refused([](ModelFile::Parts&) {}), "");
  const auto tensor = [](ModelFile::Parts& parts, std::string_view name) -> TensorInfo& {
    const auto found = std::ranges::find(parts.tensors, name, &TensorInfo::name);
    CHECK(found != parts.tensors.end());
    return *found;
  };
  const auto says = [&](const char* what, auto change) {
    EXPECT_NE(refused(change).find(what), std::string::npos) << what << ": " << refused(change);
  };
  for (const DType dtype : {DType::kI8, DType::kI32}) {
    says("which a weight cannot be", [&](ModelFile::Parts& parts) {
      TensorView& view = tensor(parts, "head.0.blk.0.linear.weight").view;
      view = TensorView(view.data, dtype, {view.dim[0], view.dim[1]});
    });
  }
  says("are one", [&](ModelFile::Parts& parts) {
    parts.tensors.push_back(tensor(parts, "head.1.blk.0.linear.weight"));
    parts.tensors.back().name = "1.0.linear.weight";
  });
  for (const char* name : {"head.0.output.bias", "head.0.blk.1.skip.bias"}) {
    says("a bias of nothing", [&](ModelFile::Parts& parts) {
      parts.tensors.push_back(tensor(parts, "head.0.blk.0.linear.bias"));
      parts.tensors.back().name = name;
    });
  }
}

// The most likely token of head i after this hidden state and these tokens; and of the head after it after that one.
TEST(HeadsProposer, ReadsTheLastStateAndTheTokensAfterIt) {
  LoadedModel m(testing::TinyModelOptions{});
  TinyHeads o = heads_for(m);
  o.ids = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89};
  const auto file = tiny_heads_file(o);
  HeadsProposer proposer(DraftHeads::load(file, *m.model, *m.stream, 4).value(), *m.stream,
                         {.max_sequences = 2, .vocab_size = 96, .context_len = 64, .always = true});
  EXPECT_TRUE(proposer.reads_hidden());
  const auto greedy = Sampler::compile({.temperature = 0}, 96, {}, 1).value();
  std::vector<TokenId> text = testing::some_tokens(12, 96, 3);
  const auto drafted = [&](int64_t sequence, size_t n) {
    Drafts drafts;
    proposer.propose({.sequence = sequence,
                      .prompt = std::span(text).first(4),
                      .answer = std::span(text).subspan(4, n - 4),
                      .max_drafts = 8,
                      .sampler = greedy.get()},
                     drafts);
    return drafts.tokens;
  };
  const auto expected = [&](const std::vector<float>& hidden, size_t n) {
    std::vector<TokenId> out, following = {text[n - 1]};
    for (int32_t i = 0; i < o.n_heads; ++i) {
      const auto logits = said(o, *file, *m.model, i, hidden, following);
      const auto best = std::ranges::max_element(logits) - logits.begin();
      out.push_back(TokenId{static_cast<int32_t>(o.ids[static_cast<size_t>(best)])});
      following.push_back(out.back());
    }
    return out;
  };
  const auto hidden = [&](uint64_t seed) { return some_hidden(o.width, seed); };
  EXPECT_TRUE(drafted(1, 8).empty()) << "nothing was told of this text";
  proposer.saw(1, 8, hidden(1));
  proposer.saw(2, 6, hidden(2));
  EXPECT_EQ(drafted(1, 8), expected(hidden(1), 8));
  EXPECT_EQ(drafted(2, 6), expected(hidden(2), 6));
  EXPECT_TRUE(drafted(1, 9).empty()) << "the state is of the text before its last token";
  proposer.saw(1, 9, hidden(3));
  EXPECT_EQ(drafted(1, 9), expected(hidden(3), 9));
  proposer.saw(3, 9, hidden(4));
  EXPECT_TRUE(drafted(3, 9).empty()) << "both places are taken";
  proposer.forget(2);
  proposer.saw(3, 9, hidden(4));
  EXPECT_EQ(drafted(3, 9), expected(hidden(4), 9));
  text[11] = o.ids.empty() ? text[11] : TokenId{2};
  proposer.saw(1, 12, hidden(5));
  EXPECT_EQ(drafted(1, 12), expected(hidden(5), 12));
}

// For both kinds: Hydra's heads read the path to a place, Medusa's give the same logits for all paths.
TEST(HeadsProposer, DrawsTreesFromThePredictionsOnEachPath) {
  for (const bool is_grounded : {true, false}) {
    LoadedModel m(testing::TinyModelOptions{});
    TinyHeads o = heads_for(m);
    o.n_heads = 3, o.is_grounded = is_grounded;
    const auto file = tiny_heads_file(o);
    const HeadsOptions options = {
        .max_sequences = 2, .vocab_size = 96, .context_len = 64, .always = true, .branches = HeadsProposer::kBranches};
    HeadsProposer proposer(DraftHeads::load(file, *m.model, *m.stream, HeadsProposer::n_rows(options)).value(),
                           *m.stream, options);
    const auto greedy = Sampler::compile({.temperature = 0}, 96, {}, 1).value();
    const std::vector<TokenId> text = testing::some_tokens(12, 96, 3);
    std::vector<Drafts> drafts(2);
    std::vector<Proposal> both;
    for (int64_t sequence : {0, 1}) {
      proposer.saw(sequence, 12, some_hidden(o.width, static_cast<uint64_t>(sequence)));
      both.push_back({{.sequence = sequence,
                       .prompt = std::span(text).first(4),
                       .answer = std::span(text).subspan(4),
                       .max_drafts = 13,
                       .sampler = greedy.get()},
                      &drafts[static_cast<size_t>(sequence)]});
    }
    proposer.propose_all(both);
    for (size_t sequence : {0, 1}) {
      const Drafts& d = drafts[sequence];
      ASSERT_EQ(d.size(), 13);
      size_t n_siblings = 0, deepest = 0;
      std::map<int32_t, std::vector<TokenId>> best;  // after a draft, those that are left
      for (int32_t i = 0; i < d.size(); ++i) {
        const int32_t parent = d.parents[static_cast<size_t>(i)];
        std::vector<TokenId> way;
        for (int32_t at = parent; at >= 0; at = d.parents[static_cast<size_t>(at)])
          way.push_back(d.tokens[static_cast<size_t>(at)]);
        deepest = std::max(deepest, way.size() + 1);
        way.push_back(text.back());
        std::ranges::reverse(way);
        auto [rest, is_first] = best.try_emplace(parent);
        n_siblings += !is_first;
        if (is_first) {
          const auto head = static_cast<int32_t>(way.size()) - 1;
          const auto logits = said(o, *file, *m.model, head, some_hidden(o.width, sequence), way);
          for (int32_t x = 0; x < 96; ++x) rest->second.push_back(TokenId{x});
          std::ranges::stable_sort(rest->second, std::ranges::greater(),
                                   [&](TokenId x) { return logits[static_cast<size_t>(raw(x))]; });
        }
        EXPECT_EQ(d.tokens[static_cast<size_t>(i)], rest->second.front()) << is_grounded << " " << i;
        rest->second.erase(rest->second.begin());
      }
      EXPECT_EQ(deepest, 3u);
      EXPECT_GT(n_siblings, 3u);
    }
  }
}

}  // namespace
}  // namespace ibid
