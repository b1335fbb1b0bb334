// What others need of a job, from its sections.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/job/job.h"

namespace heddle::job {

double LearningRate(const OptimizerSection& optimizer, int64_t step, int64_t steps) {
  if (step <= optimizer.warmup_steps) {
    return optimizer.learning_rate * static_cast<double>(step) /
           static_cast<double>(optimizer.warmup_steps);
  }
  if (optimizer.schedule == LearningRateSchedule::kConstant || steps <= optimizer.warmup_steps) {
    return optimizer.learning_rate;
  }
  const double progress = static_cast<double>(step - optimizer.warmup_steps) /
                          static_cast<double>(steps - optimizer.warmup_steps);
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return optimizer.minimum_learning_rate +
         (optimizer.learning_rate - optimizer.minimum_learning_rate) * cosine;
}

comm::TransportPreference CommSection::preference() const {
  return {.list = transports.empty() ? comm::TransportNames() : transports, .rule = choose};
}

const std::string& DeviceOf(const JobConfig& job, std::string_view worker) {
  const auto found = std::ranges::find(job.workers, worker, &WorkerSection::name);
  return found == job.workers.end() ? job.device : found->device;
}

graph::TrainingGraphOptions GraphOptions(const JobConfig& job) {
  return {.microbatch_size = job.batch.microbatch,
          .sequence_length = job.batch.sequence,
          .compute = job.precision,
          .loss_scale = 1.0 / static_cast<double>(job.batch.tokens()),
          .optimizer = job.optimizer.adamw};
}

data::DatasetOptions DatasetOptions(const JobConfig& job) {
  data::DatasetOptions options;
  options.paths =
      job.data.tokens.empty() ? job.data.text : std::vector<std::string>{job.data.tokens};
  options.include = job.data.include;
  if (!job.data.tokens.empty()) {
    options.format =
        job.data.token_type == "uint32" ? data::Format::kUint32 : data::Format::kUint16;
  }
  options.sequence_length = job.batch.sequence;
  options.vocabulary = job.model.vocab_size;
  options.validation_fraction = job.data.validation_fraction;
  options.seed = job.seed;
  return options;
}

}  // namespace heddle::job
