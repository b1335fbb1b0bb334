#include "elastic/worker/figures/figures.h"

#include <algorithm>

namespace heddle::elastic {
namespace {

metrics::Gauge& GenerationNumber(metrics::Registry& registry) {
  return registry.GetGauge("heddle_generation", "Generation that trains.");
}

}  // namespace

bool ShowsSteps(metrics::Registry& registry) {
  return GenerationNumber(registry).exists();
}

StepStats::StepStats(metrics::Registry& registry)
    : step_(registry.GetGauge("heddle_step", "Last step applied.")),
      generation_(GenerationNumber(registry)),
      loss_(registry.GetGauge("heddle_loss", "Training loss of the last step.")),
      gradient_norm_(
          registry.GetGauge("heddle_gradient_norm", "Global gradient norm of the last step.")),
      tokens_per_second_(
          registry.GetGauge("heddle_tokens_per_second", "Throughput of the whole job.")),
      predicted_seconds_(
          registry.GetGauge("heddle_predicted_step_seconds", "Step time that the plan predicts.")),
      busy_seconds_(registry.GetGauge("heddle_busy_seconds",
                                      "Compute of this worker in the last step, waits excluded.")),
      predicted_busy_seconds_(
          registry.GetGauge("heddle_predicted_busy_seconds", "The same by this worker's profile.")),
      waiting_seconds_(
          registry.GetGauge("heddle_waiting_seconds",
                            "Waits of this worker for messages and reductions in the last step.")),
      memory_bytes_(
          registry.GetGauge("heddle_memory_bytes",
                            "State and live values of this worker in the last step, at most.")),
      predicted_memory_bytes_(
          registry.GetGauge("heddle_predicted_memory_bytes", "The same as the plan predicts it.")),
      process_peak_bytes_(registry.GetGauge(
          "heddle_process_memory_peak_bytes",
          "The most memory of its host that this worker's process has taken since its "
          "generation began.")),
      predicted_process_bytes_(
          registry.GetGauge("heddle_predicted_process_memory_bytes",
                            "Memory of its host that the plan expects this worker's process to "
                            "take.")),
      device_memory_bytes_(registry.GetGauge(
          "heddle_device_memory_bytes",
          "Memory of its device that this worker's tensors used after the last step.")),
      device_memory_peak_bytes_(registry.GetGauge(
          "heddle_device_memory_peak_bytes",
          "The most memory of its device that this worker's tensors have used since its "
          "generation began.")),
      device_sums_(registry.GetGauge(
          "heddle_device_sums",
          "Sums of gradients in the last step that this worker's device made with others.")),
      seconds_(
          registry.GetHistogram("heddle_step_seconds",
                                "Time of a step.",
                                {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100})),
      tokens_(registry.GetCounter("heddle_tokens_total", "Tokens trained on by the whole job.")) {}

void StepStats::Show(const StepShown& shown) {
  const auto show = [](metrics::Gauge& gauge, std::optional<double> value) {
    value ? gauge.Set(*value) : gauge.Clear();
  };
  show(step_, static_cast<double>(shown.step));
  show(generation_, static_cast<double>(shown.generation));
  show(loss_, shown.loss);
  show(gradient_norm_, shown.gradient_norm);
  show(tokens_per_second_, static_cast<double>(shown.tokens) / std::max(shown.seconds, 1e-9));
  show(predicted_seconds_, shown.predicted_seconds);
  show(busy_seconds_, shown.busy_seconds);
  show(predicted_busy_seconds_, shown.predicted_busy_seconds > 0
                                    ? std::optional(shown.predicted_busy_seconds)
                                    : std::nullopt);
  show(waiting_seconds_, shown.waiting_seconds);
  show(memory_bytes_, static_cast<double>(shown.memory_bytes));
  show(predicted_memory_bytes_, shown.predicted_memory_bytes);
  show(process_peak_bytes_, static_cast<double>(shown.process_peak_bytes));
  show(predicted_process_bytes_, shown.predicted_process_bytes);
  show(device_memory_bytes_, static_cast<double>(shown.device_memory_bytes));
  show(device_memory_peak_bytes_, static_cast<double>(shown.device_memory_peak_bytes));
  show(device_sums_, static_cast<double>(shown.device_sums));
  seconds_.Observe(shown.seconds);
  tokens_.Add(static_cast<double>(shown.tokens));
}

void StepStats::Clear() {
  for (metrics::Gauge* const gauge :
       {&step_, &generation_, &loss_, &gradient_norm_, &tokens_per_second_, &predicted_seconds_,
        &busy_seconds_, &predicted_busy_seconds_, &waiting_seconds_, &memory_bytes_,
        &predicted_memory_bytes_, &process_peak_bytes_, &predicted_process_bytes_,
        &device_memory_bytes_, &device_memory_peak_bytes_, &device_sums_}) {
    gauge->Clear();
  }
}

TrainerStats::TrainerStats(metrics::Registry& registry)
    : steps(registry),
      skipped_checkpoints(
          registry.GetCounter("heddle_checkpoint_skipped_total",
                              "Checkpoints left out because a worker still wrote the one before.")),
      skipped_snapshots(registry.GetCounter(
          "heddle_replica_skipped_total",
          "Snapshots in memory left out because a worker was still at the one before.")),
      digest_seconds(registry.GetHistogram(
          "heddle_digest_seconds",
          "Time for which digests of this worker's replicas stopped training.",
          {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3})) {}

}  // namespace heddle::elastic
