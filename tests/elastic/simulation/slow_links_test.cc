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

// One of the workers takes 40 % longer than its profile says, which is noticed again after every
// pause, for no plan is made for it.
SimOptions Observed(uint64_t seed) {
  SimOptions history;
  history.seed = seed;
  history.luck = false;
  history.workers = 3;
  history.steps = 900;
  history.step_ms = 100;
  history.predicted_percent = 100;
  history.unlike_percent = 40;
  history.noise_percent = 20;
  history.product_patience = true;
  history.observes = true;
  return history;
}

TEST(SlowLinksTest, AWorkerThatIsNoticedAgainAndAgainHidesNone) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimOptions history = Observed(seed);
    history.faults = {{.kind = FaultKind::kSlowLinks, .at = 30, .seconds = 0, .draw = seed}};
    SCOPED_TRACE("HEDDLE_SIMULATION_HISTORY='" + TextOf(history) + "'");
    SimResult result = Cluster(history).Run();
    ASSERT_EQ(result.error, "");
    EXPECT_GE(result.probes["drift"], 3) << "of the worker";
    EXPECT_EQ(result.probes["links_suspected"], 1);
    EXPECT_EQ(result.probes["link_drift"], 1);
    EXPECT_EQ(result.probes["decision"], 1) << "nothing is done about either";
  }
}

// It is slow and quick by turns of 12 s, and noticed whenever the pause is over; the links become
// slow while it is quick. They are not suspected if a plan comes into force just then, because its
// first steps, with which later ones are compared, are slow already.
TEST(SlowLinksTest, AWorkerForWhichPlansChangeHidesNone) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimOptions history = Observed(seed);
    history.observes = false;
    history.unlike_percent = 0;
    const Fault turn{.kind = FaultKind::kSlow, .at = 20, .seconds = 0, .draw = seed};
    for (int i = 0; i < 10; ++i) {
      history.faults.push_back(turn);
      history.faults.back().at += 12 * i;
    }
    history.faults.push_back(
        {.kind = FaultKind::kSlowLinks, .at = 58, .seconds = 0, .draw = seed + 100});
    SCOPED_TRACE("HEDDLE_SIMULATION_HISTORY='" + TextOf(history) + "'");
    SimResult result = Cluster(history).Run();
    ASSERT_EQ(result.error, "");
    EXPECT_GE(result.probes["decided for drift"], 2) << "of the worker";
    EXPECT_EQ(result.probes["links_suspected"] > 0, result.probes["link_drift"] > 0);
    found += result.probes["link_drift"] > 0 ? 1 : 0;
  }
  EXPECT_GE(found, 18) << "of 20";
}

// Half of them take twice as long, and the others five times.
TEST(SlowLinksTest, StepsThatAWorkerExplainsRaiseNoSuspicion) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimOptions history = Observed(seed);
    history.unlike_percent = 0;
    history.faults = {{.kind = FaultKind::kSlow, .at = 30, .seconds = 0, .draw = seed},
                      {.kind = FaultKind::kSlow, .at = 90, .seconds = 0, .draw = seed}};
    SCOPED_TRACE("HEDDLE_SIMULATION_HISTORY='" + TextOf(history) + "'");
    SimResult result = Cluster(history).Run();
    ASSERT_EQ(result.error, "");
    EXPECT_GE(result.probes["drift"], 2);
    EXPECT_EQ(result.probes["links_suspected"], 0);
  }
}

}  // namespace
}  // namespace heddle::elastic
