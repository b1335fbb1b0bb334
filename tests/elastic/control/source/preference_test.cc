// A job may name the source of a recovery's state; it is taken where it has the state.
#include <gtest/gtest.h>

#include "elastic/control/source/state_sources.h"

namespace heddle::elastic {
namespace {

TEST(PreferenceTest, ThePreferredSourceComesFirstWhereItHasTheState) {
  DurableGeneration held{.number = 1, .plan = {}, .members = {{"a", "A"}}};
  held.plan.members = {"a"};
  held.plan.parameters = {{0}};
  held.plan.parameter_count = 1;
  held.plan.predicted_step_seconds = 1;
  Generations generations;
  generations.Begin(held);
  wire::Halted halted;
  halted.set_held_generation(1);
  halted.set_applied_step(20);
  halted.set_norm_step(20);
  StateSources sources;
  const auto first = [&](std::optional<Source> prefer) {
    RecoveryPolicy policy;
    policy.prefer = prefer;
    return sources.Options({{"a", halted}}, generations, Steps(), Saves(), policy).front().source;
  };
  EXPECT_EQ(first(std::nullopt), Source::kLive);
  EXPECT_EQ(first(Source::kReplicas), Source::kLive) << "there is no snapshot";
  EXPECT_EQ(first(Source::kInitial), Source::kInitial) << "also where it takes longer";
}

}  // namespace
}  // namespace heddle::elastic
