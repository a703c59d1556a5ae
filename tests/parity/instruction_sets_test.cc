// Which tables this machine runs, and that none stands in for another.
#include "kernels/cpu/table.h"
#include "parity/harness.h"

namespace ibid::parity {
namespace {

// IBID_EXPECT_ISAS: their names, worst first; tests/house/arm64.sh sets it for each processor that it emulates.
TEST(InstructionSets, EachHasProductsOfItsOwnAndAreThoseThatTheMachineHas) {
  std::string names;
  std::set<const void*> products;
  for_each_isa([&](Isa isa) {
    names += (names.empty() ? "" : " ") + std::string(isa_name(isa));
    EXPECT_TRUE(products.insert(cpu::table().linear).second) << isa_name(isa);
    EXPECT_EQ(isa_from_name(isa_name(isa)), isa);
  });
  if (const char* expected = std::getenv("IBID_EXPECT_ISAS")) {
    EXPECT_EQ(names, expected);
    printf("tables: %s\n", names.c_str());
  }
}

}  // namespace
}  // namespace ibid::parity
