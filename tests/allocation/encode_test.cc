// Encoding in steady state makes no allocation per token: only working memory grows, where a word or a stretch between
// added tokens is the longest so far. Counted are all calls of operator new by the thread that encodes, while
// it encodes; this program replaces the global one, and so stands apart from the other suites. What PCRE2 takes from
// malloc is not counted.
#include <gtest/gtest.h>

#include "conformance/tokenizer_corpus.h"
#include "conformance/tokenizer_kinds.h"
#include "replaced_new.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid {
namespace {

thread_local bool counting = false;
thread_local size_t n_allocations = 0;

const bool counted = [] {
  testing::may_allocate = []() noexcept {
    n_allocations += counting;
    return true;
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

TEST(AllocationCount, SeesAStringGrow) {
  n_allocations = 0;
  counting = true;
  std::string grown(100, 'x');
  counting = false;
  EXPECT_EQ(n_allocations, 1u) << grown.size();
}

}  // namespace
}  // namespace ibid
