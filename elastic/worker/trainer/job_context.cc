#include "elastic/worker/trainer/job_context.h"

#include <utility>

#include "base/log.h"
#include "base/thread.h"
#include "elastic/worker/replicas/replicator.h"
#include "engine/runtime/device/blas.h"

namespace heddle::elastic {
namespace {

// Warns if the machine has fewer cores, or the data fewer validation samples, than the job asks
// for.
void WarnOfTooLittle(const job::JobConfig& job, const data::Dataset& dataset) {
  if (job.threads > Cores()) {
    LogWarning("threads: {} on {} cores take turns", job.threads, Cores());
  }
  const int64_t samples = job.validation.batches * job.batch.global;
  const int64_t windows = dataset.validation_windows();
  if (windows > 0 && samples > windows) {
    LogWarning(
        "validation.batches: {} of {} samples are more than the {} that there are for "
        "validation: some count more than once",
        job.validation.batches, job.batch.global, windows);
  }
}

}  // namespace

JobContext::JobContext(TrainerOptions given)
    : options(std::move(given)),
      figures(*options.registry) {}

Result<std::unique_ptr<JobContext>> JobContext::Create(TrainerOptions options) {
  auto context = std::make_unique<JobContext>(std::move(options));
  const TrainerOptions& given = context->options;
  const job::JobConfig& job = given.job;
  runtime::SetThreads(static_cast<int>(job.threads));
  HEDDLE_ASSIGN_OR_RETURN(context->device,
                          given.open_device({.speed = given.emulation.speed,
                                             .memory_cap_bytes = given.emulation.memory_bytes}));
  HEDDLE_ASSIGN_OR_RETURN(context->graph,
                          graph::BuildTrainingGraph(job.model, job::GraphOptions(job)));
  HEDDLE_ASSIGN_OR_RETURN(context->evaluation_graph,
                          graph::BuildEvaluationGraph(job.model, job::GraphOptions(job)));
  HEDDLE_ASSIGN_OR_RETURN(context->dataset, data::Dataset::Open(job::DatasetOptions(job)));
  WarnOfTooLittle(job, *context->dataset);
  HEDDLE_ASSIGN_OR_RETURN(context->writer, checkpoint::Writer::Create(
                                               {.root = job.checkpoint.RootIn(given.output_folder),
                                                .name = given.worker},
                                               *given.registry));
  if (job.checkpoint.replicas.every > 0) {
    HEDDLE_ASSIGN_OR_RETURN(context->replica_writer,
                            checkpoint::Writer::Create({.root = "", .name = given.worker},
                                                       ReplicaFigures(*given.registry)));
  }
  given.endpoint->SetLinkRate(given.emulation.link_bytes_per_second);
  return context;
}

void JobContext::SetEmulation(const job::Emulation& emulation) {
  device->clock().SetSpeed(emulation.speed);
  device->EmulateMemory(emulation.memory_bytes);
  options.endpoint->SetLinkRate(emulation.link_bytes_per_second);
}

}  // namespace heddle::elastic
