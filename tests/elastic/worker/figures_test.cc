// What a worker shows of its training, and what it does not.
#include "elastic/worker/figures/figures.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

class FiguresTest : public testing::Test {
 protected:
  using Values = std::map<std::string, double>;
  Values Shown(metrics::Registry::Kind kind) const {
    Values values;
    for (const auto& family : registry_.Collect()) {
      for (const auto& sample : family.samples) {
        if (family.kind == kind) {
          values[family.name] = sample.value;
        }
      }
    }
    return values;
  }
  Values Gauges() const { return Shown(metrics::Registry::Kind::kGauge); }

  metrics::Registry registry_;
  TrainerStats figures_{registry_};
};

TEST_F(FiguresTest, CountersAreThereAndFiguresOfStepsAreNot) {
  EXPECT_EQ(Shown(metrics::Registry::Kind::kCounter),
            (Values{{"heddle_checkpoint_skipped_total", 0},
                    {"heddle_replica_skipped_total", 0},
                    {"heddle_tokens_total", 0}}));
  EXPECT_EQ(Shown(metrics::Registry::Kind::kHistogram),
            (Values{{"heddle_digest_seconds", 0}, {"heddle_step_seconds", 0}}));
  EXPECT_EQ(Gauges(), Values());
  EXPECT_FALSE(ShowsSteps(registry_));
}

TEST_F(FiguresTest, AStepIsShownUntilTheWorkerMakesNone) {
  StepShown shown{.step = 3,
                  .generation = 2,
                  .loss = 1.5,
                  .gradient_norm = 0.25,
                  .tokens = 96,
                  .seconds = 3,
                  .predicted_seconds = 2.5,
                  .busy_seconds = 2,
                  .predicted_busy_seconds = 1.75,
                  .waiting_seconds = 0.5,
                  .memory_bytes = 1000,
                  .predicted_memory_bytes = 1100,
                  .process_peak_bytes = 4500,
                  .predicted_process_bytes = 4600,
                  .device_memory_bytes = 5000,
                  .device_memory_peak_bytes = 6000,
                  .device_sums = 7};
  Values expected = {{"heddle_step", 3},
                     {"heddle_generation", 2},
                     {"heddle_loss", 1.5},
                     {"heddle_gradient_norm", 0.25},
                     {"heddle_tokens_per_second", 32},
                     {"heddle_predicted_step_seconds", 2.5},
                     {"heddle_busy_seconds", 2},
                     {"heddle_predicted_busy_seconds", 1.75},
                     {"heddle_waiting_seconds", 0.5},
                     {"heddle_memory_bytes", 1000},
                     {"heddle_predicted_memory_bytes", 1100},
                     {"heddle_process_memory_peak_bytes", 4500},
                     {"heddle_predicted_process_memory_bytes", 4600},
                     {"heddle_device_memory_bytes", 5000},
                     {"heddle_device_memory_peak_bytes", 6000},
                     {"heddle_device_sums", 7}};
  figures_.steps.Show(shown);
  EXPECT_EQ(Gauges(), expected);
  EXPECT_TRUE(ShowsSteps(registry_));
  // What is not predicted any more is no prediction of this step.
  shown.predicted_busy_seconds = 0;
  shown.predicted_memory_bytes.reset();
  expected.erase("heddle_predicted_busy_seconds");
  expected.erase("heddle_predicted_memory_bytes");
  figures_.steps.Show(shown);
  EXPECT_EQ(Gauges(), expected);
  figures_.steps.Clear();
  EXPECT_EQ(Gauges(), Values());
  EXPECT_FALSE(ShowsSteps(registry_));
  EXPECT_EQ(Shown(metrics::Registry::Kind::kCounter).at("heddle_tokens_total"), 2 * 96);
}

}  // namespace
}  // namespace heddle::elastic
