#include "base/spell_fields.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace ibid {
namespace {

enum class Colour : uint8_t { kRed, kBlue };
struct Inner {
  std::string name;
  std::vector<std::string> words = {};
};
struct Outer {
  int32_t n = 0;
  bool is_set = false;
  Colour colour = Colour::kRed;
  std::string text;
  std::vector<Inner> inner;
};

TEST(SpellFields, DistinguishesAnyTwoThatDifferInOneField) {
  std::vector<Outer> all(12);
  all[1].n = 1;
  all[2].n = -1;
  all[3].is_set = true;
  all[4].colour = Colour::kBlue;
  all[5].text = std::string(1, '\0');
  all[6].inner.resize(1);
  all[7].inner.resize(2);
  all[8].inner = {{.name = "a", .words = {"b", "c"}}};
  all[9].inner = {{.name = "a", .words = {"bc"}}};
  all[10].inner = {{.name = "a", .words = {}}, {.name = "b", .words = {"c"}}};
  all[11].inner = {{.name = "ab", .words = {"", "c"}}};
  std::set<std::string> spelled;
  for (const Outer& one : all) spelled.insert(spell_fields(one));
  EXPECT_EQ(spelled.size(), all.size());
  EXPECT_EQ(spell_fields(all[8]), spell_fields(Outer{.inner = {{.name = "a", .words = {"b", "c"}}}}));
}

}  // namespace
}  // namespace ibid
