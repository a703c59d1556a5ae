// Encoding in steady state makes no allocation per token: only working memory grows, where a word or a stretch between
// added tokens is the longest so far. Counted are all calls of operator new by the thread that encodes, while
// it encodes; this program replaces the global one, and so stands apart from the other suites. What PCRE2 takes from
// malloc is not counted.
#include <gtest/gtest.h>

#include "conformance/tokenizer_corpus.h"
#include "conformance/tokenizer_kinds.h"
#include "replaced_new.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid {
namespace {

thread_local bool counting = false;
thread_local size_t n_allocations = 0, n_to_give = SIZE_MAX;

const bool counted = [] {
  testing::may_allocate = []() noexcept {
    n_allocations += counting;
    return !counting || n_allocations <= n_to_give;
  };
  return true;
}();

// About n_bytes of the corpus from string `first` on, in lines.
std::string corpus_text(size_t first, size_t n_bytes) {
  std::string text;
  for (size_t i = first; text.size() < n_bytes; ++i) text += corpus::string(4, i) + "\n";
  text.resize(n_bytes);
  return text;
}

constexpr size_t kGrowths = 16;

class EncodeAllocations : public ::testing::TestWithParam<std::string> {};

TEST_P(EncodeAllocations, AreNonePerTokenOfTheSecondTextOfAKind) {
  auto made = Tokenizer::from_json(compose_kind(GetParam()));
  ASSERT_TRUE(made.ok()) << made.error().message;
  std::string first = corpus_text(0, 48'000), second = corpus_text(1000, 24'000);
  std::vector<TokenId> ids;
  ids.reserve(2 * first.size());
  for (bool special : {true, false}) {
    EncodeOptions options = {.add_special = special, .parse_special = special};
    (*made)->encode(first, options, ids);
    ids.clear();
    n_allocations = 0;
    counting = true;
    (*made)->encode(second, options, ids);
    counting = false;
    EXPECT_LE(n_allocations, kGrowths) << "for " << ids.size() << " tokens";
    EXPECT_GT(ids.size(), 1000u);
    ids.clear();
  }
}
INSTANTIATE_TEST_SUITE_P(All, EncodeAllocations, ::testing::ValuesIn(tokenizer_kinds()));

// A thread goes on after a request that found no memory, with the scratch that it left.
TEST(BpeScratch, MergesAnotherWordWhereMemoryRanOut) {
  std::vector<Merge> merges;
  for (int32_t r = 0; r < 400; ++r) merges.push_back({r * 7 % 20, r * 11 % 23, r, 100 + r});
  const BpeMerger merger = BpeMerger::build(merges).value();
  std::vector<int32_t> word;
  for (int32_t i = 0; i < 4000; ++i) word.push_back(i * i % 23);
  const std::vector<int32_t> next(word.begin(), word.begin() + 300);
  const auto merged = [&](const std::vector<int32_t>& symbols, BpeScratch& scratch) {
    scratch.symbols = symbols;
    merger.merge_long(scratch);
    return scratch.symbols;
  };
  BpeScratch fresh;
  const std::vector<int32_t> expected = merged(next, fresh);
  size_t n_failed = 0;
  for (bool failed = true; failed; n_failed += failed) {
    BpeScratch scratch;
    scratch.symbols = word;
    n_allocations = 0;
    n_to_give = n_failed;
    counting = true;
    try {
      merger.merge_long(scratch);
      failed = false;
    } catch (const std::bad_alloc&) {
    }
    counting = false;
    n_to_give = SIZE_MAX;
    ASSERT_EQ(merged(next, scratch), expected) << "without allocation " << n_failed;
  }
  EXPECT_GT(n_failed, 10U);
}

TEST(AllocationCount, SeesAStringGrow) {
  n_allocations = 0;
  counting = true;
  std::string grown(100, 'x');
  counting = false;
  EXPECT_EQ(n_allocations, 1u) << grown.size();
}

}  // namespace
}  // namespace ibid
