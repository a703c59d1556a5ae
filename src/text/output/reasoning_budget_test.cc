#include "text/output/reasoning_budget.h"

#include <gtest/gtest.h>

namespace ibid {
namespace {

// Whether the block is open after each byte, as a text of o (open), b (before) and c (closed).
std::string states(const ReasoningMarkers& markers, std::string_view text, size_t piece) {
  ReasoningBlock block(markers);
  std::string out;
  for (size_t i = 0; i < text.size(); i += piece) {
    block.push(text.substr(i, piece));
    out += block.is_open() ? 'o' : block.may_go_on() ? 'b' : block.is_none() ? 'n' : 'c';
  }
  return out;
}

TEST(ReasoningBlock, OpensAtTheTextsBeginningAlone) {
  const ReasoningMarkers think{"<t>", {"</t>"}, false};
  EXPECT_EQ(states(think, "<t>ab</t>x", 1), "bboooooocc");
  EXPECT_EQ(states(think, "\n <t>a", 1), "bbbboo");
  EXPECT_EQ(states(think, "a<t>b", 1), "nnnnn");
  EXPECT_EQ(states(think, "<u>", 1), "bnn");
}

TEST(ReasoningBlock, EndsAtItsFirstEndHoweverItIsCut) {
  const ReasoningMarkers think{"<t>", {"</t>", "<call>"}, true};
  EXPECT_EQ(states(think, "a</</t>b", 1), "oooooocc");
  EXPECT_EQ(states(think, "a<call>b", 1), "oooooocc");
  for (size_t piece = 1; piece < 12; ++piece) {
    EXPECT_EQ(states(think, "a</</t>b</t>", piece).back(), 'c') << piece;
    EXPECT_EQ(states(think, "a</</ t>b</t", piece).back(), 'o') << piece;
  }
}

}  // namespace
}  // namespace ibid
