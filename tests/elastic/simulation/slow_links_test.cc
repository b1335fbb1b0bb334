// Links that are slow for good, in jobs that are long enough for it to be noticed.
// HEDDLE_TEST_SEED=N runs one of them, with all messages.
#include <cstdlib>
#include <iostream>
#include <random>

#include <gtest/gtest.h>

#include "tests/elastic/simulation/cluster.h"
#include "tests/support/tier.h"

namespace heddle::elastic {
namespace {

TEST(SlowLinksTest, LinksThatAreSlowForGoodAreFound) {
  const char* const fixed = std::getenv("HEDDLE_TEST_SEED");
  const uint64_t first =
      fixed == nullptr ? std::random_device()() : std::strtoull(fixed, nullptr, 10);
  const int histories = fixed == nullptr ? testing::Scaled(3, 10, 100) : 1;
  std::cout << "from seed " << first << "\n";
  for (int i = 0; i < histories; ++i) {
    SimOptions history;
    history.seed = first + static_cast<uint64_t>(i);
    history.steps = 1000;
    history.luck = false;
    history.trace = fixed != nullptr;
    // The last fault comes late, for it ends the others, too.
    history.faults = {{.kind = FaultKind::kSlowLinks, .at = 10, .seconds = 0, .draw = history.seed},
                      {.kind = FaultKind::kLate, .at = 40, .seconds = 1, .draw = history.seed}};
    SimResult result = Cluster(history).Run();
    ASSERT_EQ(result.error, "");
    EXPECT_GT(result.probes["links_suspected"], 0) << "seed " << history.seed;
    EXPECT_GT(result.probes["link_drift"], 0) << "seed " << history.seed;
  }
}

}  // namespace
}  // namespace heddle::elastic
