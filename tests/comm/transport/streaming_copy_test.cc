// Copies that pass the caches by: every alignment and size, and nothing beside the target.
#include "comm/transport/streaming_copy.h"

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

}  // namespace
}  // namespace heddle::comm
