// Links that are slow for good, in jobs that are long enough for it to be noticed.
#include <gtest/gtest.h>

#include "tests/elastic/simulation/cluster.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::elastic {
namespace {

TEST(SlowLinksTest, LinksThatAreSlowForGoodAreFound) {
  for (const uint64_t seed : testing::TestSeeds(testing::Scaled(3, 10, 100))) {
    SimOptions history;
    history.seed = seed;
    history.steps = 1000;
    history.luck = false;
    // The last fault comes late, for it ends the others, too.
    history.faults = {{.kind = FaultKind::kSlowLinks, .at = 10, .seconds = 0, .draw = history.seed},
                      {.kind = FaultKind::kLate, .at = 40, .seconds = 1, .draw = history.seed}};
    SCOPED_TRACE("HEDDLE_SIMULATION_HISTORY='" + TextOf(history) + "'");
    SimResult result = Cluster(history).Run();
    ASSERT_EQ(result.error, "");
    EXPECT_GT(result.probes["links_suspected"], 0);
    EXPECT_GT(result.probes["link_drift"], 0);
  }
}

}  // namespace
}  // namespace heddle::elastic
