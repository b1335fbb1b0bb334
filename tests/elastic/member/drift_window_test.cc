// A window is told once it is complete, and until the next one is.
#include "elastic/member/drift_window.h"

#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

class DriftWindowTest : public testing::Test {
 protected:
  void Count(double seconds, double busy, double predicted) {
    StepApplied event;
    event.record.set_seconds(seconds);
    event.busy_seconds = busy;
    event.predicted_busy_seconds = predicted;
    window_.Count(event);
  }
  void ExpectWindow(int64_t number, double busy, double predicted, int64_t steps, double seconds) {
    EXPECT_EQ(window_.last().number, number);
    EXPECT_EQ(window_.last().busy, busy);
    EXPECT_EQ(window_.last().predicted, predicted);
    EXPECT_EQ(window_.last().steps, steps);
    EXPECT_EQ(window_.last().seconds, seconds);
  }

  DriftWindow window_{2, std::chrono::seconds(4)};
};

TEST_F(DriftWindowTest, ItTakesBothItsStepsAndItsTime) {
  Count(8, 1, 0.5);
  ExpectWindow(0, 0, 0, 0, 0);
  Count(1, 2, 0.25);
  ExpectWindow(1, 3, 0.75, 2, 9);
  Count(1, 4, 4);
  Count(1, 4, 4);
  Count(1, 4, 4);
  ExpectWindow(1, 3, 0.75, 2, 9);
  Count(1, 4, 4);
  ExpectWindow(2, 16, 16, 4, 4);
}

TEST_F(DriftWindowTest, AGenerationCountsFromTheBeginning) {
  Count(4, 1, 1);
  Count(4, 1, 1);
  Count(4, 64, 64);
  window_.BeginGeneration();
  EXPECT_EQ(window_.last().number, 0);
  Count(4, 1, 2);
  Count(4, 1, 2);
  ExpectWindow(1, 2, 4, 2, 8);
}

}  // namespace
}  // namespace heddle::elastic
