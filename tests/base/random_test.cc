/// \file
/// Philox against the known answers of Random123's kat_vectors file, so that seeds mean the same
/// for ever.
#include "base/random.h"

#include <set>

#include <gtest/gtest.h>

namespace heddle {
namespace {

using Block = std::array<uint32_t, 4>;

TEST(RandomTest, PhiloxGivesThePublishedAnswers) {
  EXPECT_EQ(Philox(0, 0, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // Counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0: least significant word
  // first.
  EXPECT_EQ(Philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomTest, StreamsOfOneSeedDiffer) {
  const std::set<uint64_t> keys = {StreamKey(1, "a"), StreamKey(1, "b"), StreamKey(2, "a"),
                                   StreamKey(2, "b")};
  EXPECT_EQ(keys.size(), 4U);
  EXPECT_EQ(StreamKey(1, "a"), StreamKey(1, "a"));
}

TEST(RandomTest, DrawsStayInTheirRanges) {
  Random random(7);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_LT(random.Below(10), 10U);
    const int64_t between = random.Between(-3, 3);
    EXPECT_TRUE(between >= -3 && between <= 3);
    const double uniform = random.Uniform();
    EXPECT_TRUE(uniform >= 0 && uniform < 1);
  }
}

}  // namespace
}  // namespace heddle
