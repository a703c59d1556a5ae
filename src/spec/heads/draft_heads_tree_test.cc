// Trees that a file of draft heads names: read in either container, refused where they are none, drawn as they are
// under any verifier, and proposed as far as they pay.
#include <gtest/gtest.h>

#include <set>

#include "model/testing/loaded_model.h"
#include "sample/sampler.h"
#include "spec/heads/heads_proposer.h"
#include "tiny_heads.h"

namespace ibid {
namespace {

using testing::LoadedModel;
using testing::TinyHeads;
using Ways = std::vector<std::vector<int64_t>>;

// Medusa's heads, whose place i of a depth is the same after any prefix.
const Ways kTree = {{0}, {0, 0}, {1}, {0, 1}, {2}, {0, 0, 0}, {1, 0}, {3}};

std::shared_ptr<const ModelFile> with(const TinyHeads& o, std::map<std::string, MetaValue> changes) {
  static std::vector<std::shared_ptr<const ModelFile>> kept;  // whose bytes are read
  kept.push_back(tiny_heads_file(o));
  ModelFile::Parts parts;
  parts.path = "tiny heads";
  parts.tensors = kept.back()->tensors();
  parts.metadata = kept.back()->metadata();
  for (const auto& [key, value] : changes) parts.metadata[key] = value;
  return std::make_shared<const ModelFile>(std::move(parts));
}

std::map<std::string, MetaValue> as_folder(const Ways& ways) {
  std::map<std::string, MetaValue> out;
  for (size_t i = 0; i < ways.size(); ++i) out["medusa_choices." + std::to_string(i)] = ways[i];
  return out;
}

std::set<std::vector<int64_t>> ways_of(const std::vector<DraftPlace>& places) {
  std::set<std::vector<int64_t>> out;
  for (const DraftPlace& place : places) {
    std::vector<int64_t> way;
    for (const DraftPlace* at = &place;; at = &places[static_cast<size_t>(at->parent)]) {
      way.insert(way.begin(), at->rank);
      if (at->parent < 0) break;
    }
    out.insert(way);
  }
  return out;
}

TEST(NamedTrees, AreReadFromEitherContainer) {
  const std::set<std::vector<int64_t>> expected(kTree.begin(), kTree.end());
  EXPECT_EQ(ways_of(DraftHeads::read_tree(*with({.width = 8, .vocab_size = 9}, as_folder(kTree))).value()), expected);
  const std::vector<std::string> texts = {"0", "0,0", "1", "0,1", "2", "0,0,0", "1,0", "3"};
  EXPECT_EQ(ways_of(DraftHeads::read_tree(*with({.width = 8, .vocab_size = 9}, {{"medusa.choices", texts}})).value()),
            expected);
  EXPECT_TRUE(DraftHeads::read_tree(*with({.width = 8, .vocab_size = 9}, {})).value().empty());
  // Places of a rank or depth that is never drawn, and their successors.
  EXPECT_EQ(ways_of(named_tree({{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {8, 0}, {0, 0}, {0, 0, 0}}, 2).value()),
            (std::set<std::vector<int64_t>>{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {0, 0}}));
  EXPECT_EQ(widest(named_tree(kTree, 3).value()), 2);
}

TEST(NamedTrees, ThatAreNoneAreRefused) {
  for (const Ways& ways :
       {Ways{{1}}, Ways{{0, 0}}, Ways{{0}, {0}}, Ways{{0}, {}}, Ways{{-1}}, Ways{{0}, {0, 1}}, Ways{}})
    EXPECT_FALSE(named_tree(ways, 4).ok());
  const auto file = with({.width = 8, .vocab_size = 9}, as_folder({{0}, {2}}));
  EXPECT_NE(DraftHeads::read_tree(*file).error().message.find("[2] comes before"), std::string::npos);
  for (const char* text : {"", "0,", "a", "0;1"})
    EXPECT_FALSE(DraftHeads::read_tree(
                     *with({.width = 8, .vocab_size = 9}, {{"hydra.choices", std::vector<std::string>{"0", text}}}))
                     .ok());
}

// What is drafted for a sequence, as ways of ranks: which of a head's best each token is.
std::set<std::vector<int64_t>> drafted(const HeadsOptions& options, const StepPrices& prices, int32_t most,
                                       int64_t* n_ways) {
  LoadedModel m(testing::TinyModelOptions{});
  const auto file = with({.width = m.model->config().width, .vocab_size = 96, .n_heads = 3, .is_grounded = false}, {});
  const int32_t n_rows = HeadsProposer::n_rows(options);
  std::vector<std::vector<TokenId>> best;  // of each head
  std::vector<float> hidden(static_cast<size_t>(m.model->config().width));
  for (size_t i = 0; i < hidden.size(); ++i) hidden[i] = static_cast<float>(i * 7 % 11) / 5.0F - 1;
  auto heads = DraftHeads::load(file, *m.model, *m.stream, n_rows).value();
  heads->set_hidden(0, hidden);
  for (int32_t i = 0; i < 3; ++i) {
    const int32_t row = 0;
    const std::span<const float> logits = heads->run(i, {&row, 1});
    auto& ids = best.emplace_back();
    for (int32_t x = 0; x < 96; ++x) ids.push_back(TokenId{x});
    std::ranges::stable_sort(ids, std::ranges::greater(),
                             [&](TokenId x) { return logits[static_cast<size_t>(raw(x))]; });
  }
  HeadsProposer proposer(std::move(heads), *m.stream, options);
  const auto greedy = Sampler::compile({.temperature = 0}, 96, {}, 1).value();
  const std::vector<TokenId> text = testing::some_tokens(12, 96, 3);
  proposer.begin_step(prices);
  proposer.saw(1, 12, hidden);
  Drafts d;
  proposer.propose({.sequence = 1,
                    .prompt = std::span(text).first(4),
                    .answer = std::span(text).subspan(4),
                    .max_drafts = most,
                    .sampler = greedy.get()},
                   d);
  std::set<std::vector<int64_t>> out;
  for (int32_t i = 0; i < d.size(); ++i) {
    std::vector<TokenId> tokens;
    for (int32_t at = i; at >= 0; at = d.parents[static_cast<size_t>(at)])
      tokens.insert(tokens.begin(), d.tokens[static_cast<size_t>(at)]);
    std::vector<int64_t> way;
    for (size_t k = 0; k < tokens.size(); ++k) way.push_back(std::ranges::find(best[k], tokens[k]) - best[k].begin());
    out.insert(way);
  }
  *n_ways = d.size();
  return out;
}

TEST(NamedTrees, AreDrawnAsTheyAreAndProposedAsFarAsTheyPay) {
  HeadsOptions options = {.max_sequences = 2,
                          .vocab_size = 96,
                          .context_len = 64,
                          .always = true,
                          .branches = 3,
                          .tree = named_tree(kTree, 3).value()};
  int64_t n = 0;
  const std::set<std::vector<int64_t>> whole(kTree.begin(), kTree.end());
  EXPECT_EQ(drafted(options, {}, 16, &n), whole);
  EXPECT_EQ(n, std::ssize(kTree));
  EXPECT_EQ(drafted(options, {}, 3, &n), (std::set<std::vector<int64_t>>{{0}, {0, 0}, {1}})) << "the first three";
  // Coupled, where rows cost next to nothing, and where they cost a step.
  options.always = false;
  EXPECT_EQ(drafted(options, {.step = 1, .row = 1e-9}, 16, &n), whole);
  EXPECT_EQ(n, std::ssize(kTree));
  EXPECT_TRUE(drafted(options, {.step = 1, .row = 1}, 16, &n).empty());
  // The same prices without a tree: no more than grow.
  options.tree = {};
  const auto grown = drafted(options, {.step = 1, .row = 1e-9}, 16, &n);
  EXPECT_NE(grown, whole);
  EXPECT_FALSE(grown.empty());
}

}  // namespace
}  // namespace ibid
