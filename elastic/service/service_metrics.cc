#include "elastic/service/service_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "checkpoint/store/store.h"
#include "elastic/identity/verifier.h"
#include "elastic/report/event_fields.h"

namespace heddle::elastic {
namespace {

using metrics::Counter;
using metrics::Gauge;
using metrics::Histogram;
using metrics::Registry;

struct CountedEvent {
  const char* event;
  const char* metric;
  const char* help;
};
constexpr std::array kCountedEvents = {
    CountedEvent{"worker_lost", "heddle_workers_lost_total", "Workers lost so far."},
    CountedEvent{"losses_held", "heddle_losses_held_total",
                 "Times that most workers seemed lost at once, and were not given up."},
    CountedEvent{"worker_quarantined", "heddle_workers_quarantined_total",
                 "Times that a worker was held off for it came and was lost again and again."},
    CountedEvent{"state_refused", "heddle_state_refused_total",
                 "Copies of the state refused because they did not fit their hashes."},
    CountedEvent{"state_disagrees", "heddle_state_disagreements_total",
                 "Comparisons that found unlike replicas of the state."}};

Counter& Refusals(Registry& registry, std::string_view reason) {
  return registry.GetCounter("heddle_control_refused_total",
                             "Calls to the coordinator that certificates or roles did not let in.",
                             {{"reason", std::string(reason)}});
}
Counter& Issued(Registry& registry, std::string_view by) {
  return registry.GetCounter("heddle_certificates_issued_total",
                             "Certificates that workers were given.", {{"by", std::string(by)}});
}
Counter& Suspensions(Registry& registry, bool saved) {
  return registry.GetCounter("heddle_suspensions_total", "Times that all workers left.",
                             {{"saved", saved ? "true" : "false"}});
}
Counter& LinksMeasured(Registry& registry, const std::string& result) {
  return registry.GetCounter("heddle_links_measured_total",
                             "Pairs of workers whose links were measured.", {{"result", result}});
}
Counter& PlanOutcomes(Registry& registry, const std::string& verdict) {
  return registry.GetCounter("heddle_plan_outcomes_total",
                             "Changes of plan whose steps were compared with those before.",
                             {{"verdict", verdict}});
}
Counter& Tokens(Registry& registry) {
  return registry.GetCounter("heddle_tokens_total", "Tokens trained on by the whole job.");
}

const std::vector<double> kSecondsBounds = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                            2.5,  5,     10,   25,  50,   100};
Histogram& StepSeconds(Registry& registry) {
  return registry.GetHistogram("heddle_step_seconds", "Time of a step.", kSecondsBounds);
}
Histogram& RecoverySeconds(Registry& registry) {
  return registry.GetHistogram("heddle_recovery_seconds",
                               "From the cause of a change of plan to the first new step.",
                               kSecondsBounds);
}

Gauge& Step(Registry& registry) {
  return registry.GetGauge("heddle_step", "Last step applied.");
}
Gauge& Loss(Registry& registry) {
  return registry.GetGauge("heddle_loss", "Training loss of the last step.");
}
Gauge& ValidationLoss(Registry& registry) {
  return registry.GetGauge("heddle_validation_loss", "Last validation loss.");
}
Gauge& TokensPerSecond(Registry& registry) {
  return registry.GetGauge("heddle_tokens_per_second", "Throughput of the whole job.");
}
Gauge& GenerationNumber(Registry& registry) {
  return registry.GetGauge("heddle_generation", "Generation that trains.");
}
Gauge& PlanInvariant(Registry& registry) {
  return registry.GetGauge("heddle_plan_invariant",
                           "1 while any plan on like workers gives these losses, else 0.");
}
Gauge& PredictedStepSeconds(Registry& registry) {
  return registry.GetGauge("heddle_predicted_step_seconds", "Step time that the plan predicts.");
}
Gauge& PromisedStepSeconds(Registry& registry) {
  return registry.GetGauge(
      "heddle_promised_step_seconds",
      "Of the last change of plan whose steps were compared: step time promised.");
}
Gauge& RealisedStepSeconds(Registry& registry) {
  return registry.GetGauge(
      "heddle_realised_step_seconds",
      "Of the last change of plan whose steps were compared: step time measured.");
}
Gauge& PredictedRecovery(Registry& registry, const std::string& source) {
  return registry.GetGauge(
      "heddle_predicted_recovery_seconds",
      "Of the last recovery from this source, as predicted when it was chosen.",
      {{"source", source}});
}
Gauge& LastRecovery(Registry& registry, const std::string& source) {
  return registry.GetGauge(
      "heddle_last_recovery_seconds",
      "Of the last recovery from this source, from its cause until the job was where it had been.",
      {{"source", source}});
}

}  // namespace

ServiceMetrics::ServiceMetrics(Registry& registry) : registry_(registry) {
  registry_
      .GetGauge("heddle_build_info", "The program's version; always 1.", {{"version", "0.1.0"}})
      .Set(1);
  SetWorkers(0);
  SetRunning(false);
  for (const CountedEvent& counted : kCountedEvents) {
    registry_.GetCounter(counted.metric, counted.help);
  }
  for (const RefusalReason reason : kRefusalReasons) {
    Refusals(registry_, RefusalReasonName(reason));
  }
  for (const char* const by : {"token", "renewal"}) {
    Issued(registry_, by);
  }
  for (const bool saved : {true, false}) {
    Suspensions(registry_, saved);
  }
  for (const char* const verdict : {"kept", "taken_back"}) {
    PlanOutcomes(registry_, verdict);
  }
  for (const char* const result : {"ok", "failed", "timeout", "lost"}) {
    LinksMeasured(registry_, result);
  }
  Tokens(registry_);
  StepSeconds(registry_);
  RecoverySeconds(registry_);
  checkpoint::CommitFailures(registry_);
}

void ServiceMetrics::SetWorkers(int count) {
  registry_.GetGauge("heddle_workers", "Workers of the job now.").Set(count);
}

void ServiceMetrics::SetRunning(bool running) {
  registry_.GetGauge("heddle_job_running", "1 while there is a job that has not ended, else 0.")
      .Set(running ? 1 : 0);
}

void ServiceMetrics::SetCertificateEnd(double ends) {
  registry_
      .GetGauge("heddle_certificate_expires_timestamp_seconds",
                "When this process' certificate ends.")
      .Set(ends);
}

void ServiceMetrics::CountIssued(std::string_view by) {
  Issued(registry_, by).Add();
}

void ServiceMetrics::CountRefusal(std::string_view reason) {
  Refusals(registry_, reason).Add();
}

void ServiceMetrics::NoteStep(const LogEvent& event) {
  const double seconds = NumberOf(event, "seconds");
  Step(registry_).Set(NumberOf(event, "step"));
  Loss(registry_).Set(NumberOf(event, "loss"));
  StepSeconds(registry_).Observe(seconds);
  Tokens(registry_).Add(NumberOf(event, "tokens"));
  TokensPerSecond(registry_).Set(NumberOf(event, "tokens") / std::max(seconds, 1e-9));
}

void ServiceMetrics::NoteRecovery(const LogEvent& event) {
  const std::string source = TextOf(event, "source");
  if (const double predicted = NumberOf(event, "predicted_seconds"); std::isfinite(predicted)) {
    PredictedRecovery(registry_, source).Set(predicted);
  } else {
    PredictedRecovery(registry_, source).Clear();
  }
  LastRecovery(registry_, source).Set(NumberOf(event, "seconds"));
}

// Clears the figures of the job before.
void ServiceMetrics::NoteJob() {
  SetRunning(true);
  for (const auto figure :
       {Step, Loss, ValidationLoss, TokensPerSecond, GenerationNumber, PredictedStepSeconds,
        PromisedStepSeconds, RealisedStepSeconds, PlanInvariant}) {
    figure(registry_).Clear();
  }
  for (const char* const source : {"live", "replicas", "checkpoint", "initial"}) {
    PredictedRecovery(registry_, source).Clear();
    LastRecovery(registry_, source).Clear();
  }
  checkpoint::ForgetCommits(registry_);
}

void ServiceMetrics::NoteOutcome(const LogEvent& event) {
  PromisedStepSeconds(registry_).Set(NumberOf(event, "promised_seconds"));
  RealisedStepSeconds(registry_).Set(NumberOf(event, "realised_seconds"));
  PlanOutcomes(registry_, TextOf(event, "verdict")).Add();
}

void ServiceMetrics::Note(const LogEvent& event) {
  if (event.kind == "job_started") {
    NoteJob();
  } else if (event.kind == "step") {
    NoteStep(event);
  } else if (event.kind == "plan") {
    GenerationNumber(registry_).Set(NumberOf(event, "generation"));
    PredictedStepSeconds(registry_).Set(NumberOf(event, "predicted_step_seconds"));
  } else if (event.kind == "guarantee") {
    PlanInvariant(registry_).Set(TextOf(event, "guarantee") == "plan-invariant" ? 1 : 0);
  } else if (event.kind == "resumed") {
    RecoverySeconds(registry_).Observe(NumberOf(event, "seconds"));
  } else if (event.kind == "recovered") {
    NoteRecovery(event);
  } else if (event.kind == "plan_outcome") {
    NoteOutcome(event);
  } else if (event.kind == "suspended") {
    Suspensions(registry_, TextOf(event, "reason").empty()).Add();
  } else if (event.kind == "links_measured") {
    LinksMeasured(registry_, TextOf(event, "result")).Add();
  } else if (event.kind == "validation") {
    ValidationLoss(registry_).Set(NumberOf(event, "loss"));
  }
  for (const CountedEvent& counted : kCountedEvents) {
    if (event.kind == counted.event) {
      registry_.GetCounter(counted.metric, counted.help).Add();
    }
  }
}

}  // namespace heddle::elastic
