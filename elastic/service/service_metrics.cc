#include "elastic/service/service_metrics.h"

#include <algorithm>

#include "elastic/service/event_fields.h"

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

void ServiceMetrics::Note(const LogEvent& event) {
  if (event.kind == "step") {
    const double seconds = NumberOf(event, "seconds");
    registry_.GetGauge("heddle_step", "Last step applied.").Set(NumberOf(event, "step"));
    registry_.GetGauge("heddle_loss", "Training loss of the last step.")
        .Set(NumberOf(event, "loss"));
    registry_.GetHistogram("heddle_step_seconds", "Time of a step.", kSecondsBounds)
        .Observe(seconds);
    registry_.GetCounter("heddle_tokens_total", "Tokens trained on by the whole job.")
        .Add(NumberOf(event, "tokens"));
    registry_.GetGauge("heddle_tokens_per_second", "Throughput of the whole job.")
        .Set(NumberOf(event, "tokens") / std::max(seconds, 1e-9));
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
  } else if (event.kind == "worker_lost") {
    registry_.GetCounter("heddle_workers_lost_total", "Workers lost so far.").Add();
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
