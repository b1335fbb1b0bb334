// What the coordinator shows of its events, and before any.
#include "elastic/service/service_metrics.h"

#include <cmath>
#include <map>
#include <string>

#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

class ServiceMetricsTest : public testing::Test {
 protected:
  using Values = std::map<std::string, double>;
  /// Of every sample of `kind`, by its name and labels' values; a histogram's is its count.
  Values Shown(metrics::Registry::Kind kind) const {
    Values values;
    for (const auto& family : registry_.Collect()) {
      for (const auto& sample : family.samples) {
        std::string name = family.name;
        for (const auto& [label, value] : sample.labels) {
          name += " " + value;
        }
        if (family.kind == kind) {
          values[name] = kind == metrics::Registry::Kind::kHistogram
                             ? static_cast<double>(sample.histogram.cumulative.back())
                             : sample.value;
        }
      }
    }
    return values;
  }
  static LogEvent Outcome(const std::string& verdict) {
    return {"plan_outcome",
            {{"promised_seconds", 0.25}, {"realised_seconds", 0.75}, {"verdict", verdict}}};
  }
  Values Counters() const { return Shown(metrics::Registry::Kind::kCounter); }
  Values Gauges() const { return Shown(metrics::Registry::Kind::kGauge); }

  metrics::Registry registry_;
  ServiceMetrics metrics_{registry_};
};

// Prometheus sees no increase in what appears with its first event.
TEST_F(ServiceMetricsTest, EveryCounterBeginsAtZero) {
  Values expected;
  for (const char* const name : {"heddle_certificates_issued_total renewal",
                                 "heddle_certificates_issued_total token",
                                 "heddle_checkpoint_failures_total checkpoint",
                                 "heddle_control_refused_total expired",
                                 "heddle_control_refused_total foreign_authority",
                                 "heddle_control_refused_total name",
                                 "heddle_control_refused_total no_certificate",
                                 "heddle_control_refused_total no_identity",
                                 "heddle_control_refused_total no_tls",
                                 "heddle_control_refused_total revoked",
                                 "heddle_control_refused_total role",
                                 "heddle_control_refused_total token",
                                 "heddle_links_measured_total failed",
                                 "heddle_links_measured_total lost",
                                 "heddle_links_measured_total ok",
                                 "heddle_links_measured_total timeout",
                                 "heddle_losses_held_total",
                                 "heddle_plan_outcomes_total kept",
                                 "heddle_plan_outcomes_total taken_back",
                                 "heddle_state_disagreements_total",
                                 "heddle_state_refused_total",
                                 "heddle_suspensions_total false",
                                 "heddle_suspensions_total true",
                                 "heddle_tokens_total",
                                 "heddle_workers_lost_total",
                                 "heddle_workers_quarantined_total"}) {
    expected[name] = 0;
  }
  EXPECT_EQ(Counters(), expected);
  EXPECT_EQ(Shown(metrics::Registry::Kind::kHistogram),
            (Values{{"heddle_recovery_seconds", 0}, {"heddle_step_seconds", 0}}));
}

TEST_F(ServiceMetricsTest, NothingIsShownBeforeItExists) {
  EXPECT_EQ(
      Gauges(),
      (Values{{"heddle_build_info 0.1.0", 1}, {"heddle_job_running", 0}, {"heddle_workers", 0}}));
}

TEST_F(ServiceMetricsTest, EachEventRaisesItsOwnCounter) {
  const std::map<std::string, LogEvent> events = {
      {"heddle_workers_lost_total", {"worker_lost", {}}},
      {"heddle_losses_held_total", {"losses_held", {}}},
      {"heddle_workers_quarantined_total", {"worker_quarantined", {}}},
      {"heddle_state_refused_total", {"state_refused", {}}},
      {"heddle_state_disagreements_total", {"state_disagrees", {}}},
      {"heddle_suspensions_total true", {"suspended", {{"reason", std::string()}}}},
      {"heddle_suspensions_total false", {"suspended", {{"reason", std::string("full")}}}},
      {"heddle_links_measured_total ok", {"links_measured", {{"result", std::string("ok")}}}},
      {"heddle_links_measured_total lost", {"links_measured", {{"result", std::string("lost")}}}},
      {"heddle_plan_outcomes_total kept", Outcome("kept")},
      {"heddle_plan_outcomes_total taken_back", Outcome("taken_back")},
      {"heddle_tokens_total", {"step", {{"tokens", int64_t{1}}}}}};
  Values expected = Counters();
  for (const auto& [counter, event] : events) {
    metrics_.Note(event);
    ++expected.at(counter);
    EXPECT_EQ(Counters(), expected) << counter;
  }
  metrics_.CountRefusal("role");
  metrics_.CountIssued("token");
  ++expected.at("heddle_control_refused_total role");
  ++expected.at("heddle_certificates_issued_total token");
  EXPECT_EQ(Counters(), expected);
}

TEST_F(ServiceMetricsTest, FiguresOfAJobAreNotTheNextOnes) {
  const Values none = Gauges();
  metrics_.Note({"job_started", {}});
  EXPECT_EQ(Gauges().at("heddle_job_running"), 1);
  metrics_.Note({"plan", {{"generation", int64_t{2}}, {"predicted_step_seconds", 0.5}}});
  metrics_.Note(
      {"step", {{"step", int64_t{7}}, {"loss", 3.5}, {"tokens", int64_t{64}}, {"seconds", 2.0}}});
  metrics_.Note({"validation", {{"loss", 4.5}}});
  metrics_.Note({"guarantee", {{"guarantee", std::string("plan-invariant")}}});
  metrics_.Note({"recovered",
                 {{"source", std::string("live")}, {"predicted_seconds", 1.5}, {"seconds", 2.5}}});
  metrics_.Note(Outcome("kept"));
  const Values shown = {{"heddle_build_info 0.1.0", 1},
                        {"heddle_generation", 2},
                        {"heddle_job_running", 1},
                        {"heddle_last_recovery_seconds live", 2.5},
                        {"heddle_loss", 3.5},
                        {"heddle_plan_invariant", 1},
                        {"heddle_predicted_recovery_seconds live", 1.5},
                        {"heddle_predicted_step_seconds", 0.5},
                        {"heddle_promised_step_seconds", 0.25},
                        {"heddle_realised_step_seconds", 0.75},
                        {"heddle_step", 7},
                        {"heddle_tokens_per_second", 32},
                        {"heddle_validation_loss", 4.5},
                        {"heddle_workers", 0}};
  EXPECT_EQ(Gauges(), shown);
  metrics_.SetRunning(false);
  metrics_.Note({"job_started", {}});
  metrics_.SetRunning(false);
  EXPECT_EQ(Gauges(), none);
}

TEST_F(ServiceMetricsTest, AGuaranteeThatIsLostIsShown) {
  for (const char* const guarantee : {"per-plan", "unknown", "none"}) {
    metrics_.Note({"guarantee", {{"guarantee", std::string("plan-invariant")}}});
    EXPECT_EQ(Gauges().at("heddle_plan_invariant"), 1);
    metrics_.Note({"guarantee", {{"guarantee", std::string(guarantee)}}});
    EXPECT_EQ(Gauges().at("heddle_plan_invariant"), 0) << guarantee;
  }
}

TEST_F(ServiceMetricsTest, ARecoveryThatNobodyPredictedShowsNoPrediction) {
  metrics_.Note({"recovered",
                 {{"source", std::string("live")}, {"predicted_seconds", 1.5}, {"seconds", 2.5}}});
  metrics_.Note({"recovered",
                 {{"source", std::string("live")}, {"predicted_seconds", NAN}, {"seconds", 3.5}}});
  EXPECT_FALSE(Gauges().contains("heddle_predicted_recovery_seconds live"));
  EXPECT_EQ(Gauges().at("heddle_last_recovery_seconds live"), 3.5);
}

}  // namespace
}  // namespace heddle::elastic
