// Copies that pass the caches by: every alignment and size, and nothing beside the target; and when
// they are chosen.
#include "comm/transport/streaming_copy.h"

#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/support/seed.h"

namespace heddle::comm {
namespace {

TEST(StreamingCopyTest, CopiesWhatItIsToAndNothingElse) {
  const uint64_t seed = testing::TestSeed();
  Random random(seed);
  constexpr size_t kRoom = 12'288;
  constexpr auto kUntouched = std::byte{0xA5};
  for (int round = 0; round < 1000; ++round) {
    std::vector<std::byte> from(kRoom);
    for (std::byte& byte : from) {
      byte = static_cast<std::byte>(random.Below(256));
    }
    std::vector<std::byte> to(kRoom, kUntouched);
    const auto source = random.Below(130);
    const auto target = random.Below(130);
    const auto bytes = random.Below(round % 4 == 0 ? 200 : kRoom - 130);
    CopyStreaming(to.data() + target, from.data() + source, bytes);
    for (size_t i = 0; i < kRoom; ++i) {
      const bool inside = i >= target && i < target + bytes;
      ASSERT_EQ(to[i], inside ? from[source + i - target] : kUntouched)
          << "byte " << i << " of a copy of " << bytes << " from " << source << " to " << target;
    }
  }
}

TEST(StoreChoiceTest, StreamsWhereOrdinaryStoresAreSlow) {
  using std::chrono::microseconds;
  constexpr size_t kBytes = 16384;
  StoreChoice choice;
  EXPECT_FALSE(choice.Streams());
  // 16 GB/s, within one cache.
  for (int i = 0; i < 100; ++i) {
    choice.Record(kBytes, microseconds(1));
  }
  EXPECT_FALSE(choice.Streams());
  // 4 GB/s, between two caches.
  for (int i = 0; i < 10; ++i) {
    choice.Record(kBytes, microseconds(4));
  }
  EXPECT_TRUE(choice.streams());
}

TEST(StoreChoiceTest, OneCopyThatWasInterruptedDecidesNothing) {
  StoreChoice choice;
  for (int i = 0; i < 100; ++i) {
    choice.Record(16384, std::chrono::milliseconds(i % 3 == 0 ? 10 : 0));
    EXPECT_FALSE(choice.streams()) << i;
  }
}

TEST(StoreChoiceTest, MeasuresAgainWhileItStreams) {
  StoreChoice choice;
  for (int i = 0; i < 100; ++i) {
    choice.Record(16384, std::chrono::microseconds(4));
  }
  int ordinary = 0;
  for (int i = 0; i < 160; ++i) {
    if (!choice.Streams()) {
      ++ordinary;
    }
  }
  EXPECT_EQ(ordinary, 10);
  // The cores share a cache again: a few measurements suffice.
  for (int i = 0; i < 3; ++i) {
    choice.Record(16384, std::chrono::microseconds(1));
  }
  EXPECT_FALSE(choice.streams());
}

}  // namespace
}  // namespace heddle::comm
