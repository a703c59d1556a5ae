#include "kernels/noise.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/isa.h"
#include "sample/philox.h"

namespace ibid {
namespace {

TEST(Noise, EveryInstructionSetGivesThePublishedGeneratorsWords) {
  Isa before = selected_isa();
  for (Isa isa : supported_isas()) {
    ASSERT_TRUE(select_isa(isa).ok());
    for (size_t n_groups : {1u, 2u, 3u, 7u, 8u, 9u, 100u}) {
      std::vector<uint32_t> words(4 * n_groups + 1, 0xABABABABu);
      fill_noise(std::span(words).first(4 * n_groups), 0x0123456789ABCDEFull, 4711, 1);
      EXPECT_EQ(words.back(), 0xABABABABu) << "wrote past the end";
      for (uint32_t g = 0; g < n_groups; ++g) {
        auto expected = noise_words(0x0123456789ABCDEFull, 4711, NoisePurpose::kXtc, g);
        for (size_t w = 0; w < 4; ++w) ASSERT_EQ(words[4 * g + w], expected[w]) << isa_name(isa) << " group " << g;
      }
    }
  }
  ASSERT_TRUE(select_isa(before).ok());
}

}  // namespace
}  // namespace ibid
