#include "elastic/service/service_metrics.h"

#include <algorithm>

#include "elastic/report/event_fields.h"

namespace heddle::elastic {
namespace {

const std::vector<double> kSecondsBounds = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                            2.5,  5,     10,   25,  50,   100};

}  // namespace

ServiceMetrics::ServiceMetrics(metrics::Registry& registry) : registry_(registry) {
  registry_
      .GetGauge("heddle_build_info", "The program's version; always 1.", {{"version", "0.1.0"}})
      .Set(1);
  SetWorkers(0);
}

void ServiceMetrics::SetWorkers(int count) {
  registry_.GetGauge("heddle_workers", "Workers of the job now.").Set(count);
}

void ServiceMetrics::SetCertificateEnd(double ends) {
  registry_
      .GetGauge("heddle_certificate_expires_timestamp_seconds",
                "When this process' certificate ends.")
      .Set(ends);
}

void ServiceMetrics::CountIssued(std::string_view by) {
  registry_
      .GetCounter("heddle_certificates_issued_total", "Certificates that workers were given.",
                  {{"by", std::string(by)}})
      .Add();
}

void ServiceMetrics::CountRefusal(std::string_view reason) {
  registry_
      .GetCounter("heddle_control_refused_total",
                  "Calls to the coordinator that certificates or roles did not let in.",
                  {{"reason", std::string(reason)}})
      .Add();
}

void ServiceMetrics::NoteStep(const LogEvent& event) {
  const double seconds = NumberOf(event, "seconds");
  registry_.GetGauge("heddle_step", "Last step applied.").Set(NumberOf(event, "step"));
  registry_.GetGauge("heddle_loss", "Training loss of the last step.").Set(NumberOf(event, "loss"));
  registry_.GetHistogram("heddle_step_seconds", "Time of a step.", kSecondsBounds).Observe(seconds);
  registry_.GetCounter("heddle_tokens_total", "Tokens trained on by the whole job.")
      .Add(NumberOf(event, "tokens"));
  registry_.GetGauge("heddle_tokens_per_second", "Throughput of the whole job.")
      .Set(NumberOf(event, "tokens") / std::max(seconds, 1e-9));
}

void ServiceMetrics::NoteRecovery(const LogEvent& event) {
  const metrics::Labels source = {{"source", TextOf(event, "source")}};
  registry_
      .GetGauge("heddle_predicted_recovery_seconds",
                "Of the last recovery from this source, as predicted when it was chosen.", source)
      .Set(NumberOf(event, "predicted_seconds"));
  registry_
      .GetGauge("heddle_last_recovery_seconds",
                "Of the last recovery from this source, from its cause until the job was where it "
                "had been.",
                source)
      .Set(NumberOf(event, "seconds"));
}

void ServiceMetrics::Note(const LogEvent& event) {
  if (event.kind == "step") {
    NoteStep(event);
  } else if (event.kind == "plan") {
    registry_.GetGauge("heddle_generation", "Generation that trains.")
        .Set(NumberOf(event, "generation"));
    registry_.GetGauge("heddle_predicted_step_seconds", "Step time that the plan predicts.")
        .Set(NumberOf(event, "predicted_step_seconds"));
  } else if (event.kind == "resumed") {
    registry_
        .GetHistogram("heddle_recovery_seconds",
                      "From the cause of a change of plan to the first new step.", kSecondsBounds)
        .Observe(NumberOf(event, "seconds"));
  } else if (event.kind == "recovered") {
    NoteRecovery(event);
  } else if (event.kind == "worker_lost") {
    registry_.GetCounter("heddle_workers_lost_total", "Workers lost so far.").Add();
  } else if (event.kind == "losses_held") {
    registry_
        .GetCounter("heddle_losses_held_total",
                    "Times that most workers seemed lost at once, and were not given up.")
        .Add();
  } else if (event.kind == "worker_quarantined") {
    registry_
        .GetCounter("heddle_workers_quarantined_total",
                    "Times that a worker was held off for it came and was lost again and again.")
        .Add();
  } else if (event.kind == "state_refused") {
    registry_
        .GetCounter("heddle_state_refused_total",
                    "Copies of the state refused because they did not fit their hashes.")
        .Add();
  } else if (event.kind == "state_disagrees") {
    registry_
        .GetCounter("heddle_state_disagreements_total",
                    "Comparisons that found unlike replicas of the state.")
        .Add();
  } else if (event.kind == "suspended") {
    registry_
        .GetCounter("heddle_suspensions_total", "Times that all workers left.",
                    {{"saved", TextOf(event, "reason").empty() ? "true" : "false"}})
        .Add();
  } else if (event.kind == "links_measured") {
    registry_
        .GetCounter("heddle_links_measured_total", "Pairs of workers whose links were measured.",
                    {{"result", TextOf(event, "result")}})
        .Add();
  } else if (event.kind == "validation") {
    registry_.GetGauge("heddle_validation_loss", "Last validation loss.")
        .Set(NumberOf(event, "loss"));
  }
}

}  // namespace heddle::elastic
