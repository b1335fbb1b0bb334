/// \file
/// What a worker has of a job apart from any plan: the options that it was given, the graphs, the
/// data and the writers.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/progress.h"
#include "base/status.h"
#include "checkpoint/save/writer.h"
#include "comm/communicator.h"
#include "elastic/control/policy.h"
#include "elastic/member/member.h"
#include "elastic/worker/figures/figures.h"
#include "elastic/worker/trainer/move_progress.h"
#include "engine/data/dataset.h"
#include "engine/job/job.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/executor.h"
#include "metrics/registry.h"

namespace heddle::elastic {

struct TrainerOptions {
  std::string worker;  ///< Name of this worker.
  job::JobConfig job;
  JobPolicy policy;
  std::string output_folder;
  job::Emulation emulation;
  comm::EndpointOptions endpoint_options;  ///< With the job's identity and secret.
  comm::Endpoint* endpoint = nullptr;      ///< Outlives the trainer.
  metrics::Registry* registry = nullptr;   ///< Outlives the trainer.
  std::function<void(MemberEvent)> post;   ///< Takes events. Thread: any; never blocks.
  /// Opens the device that the worker computes on.
  std::function<Result<std::unique_ptr<runtime::Device>>(const runtime::DeviceOptions&)>
      open_device;
};

/// How long a worker waits for others that move state; long enough for slow links. A move that
/// makes no progress is ended earlier by the coordinator, which sees the progress of all workers,
/// and a worker without a coordinator gives up by itself (elastic/member/member.h).
inline constexpr Duration kLongestMove = std::chrono::hours(24);

/// The parts of a worker that do not change with the plan.
struct JobContext {
  /// Opens the device and the data and builds the graphs. Errors: kInvalidArgument (the job does
  /// not fit this machine, for example its data is missing), those of the writers.
  static Result<std::unique_ptr<JobContext>> Create(TrainerOptions options);
  explicit JobContext(TrainerOptions options);
  /// Changes the emulated speed, memory and link rate. Thread: any.
  void SetEmulation(const job::Emulation& emulation);

  const TrainerOptions options;
  mutable TrainerStats figures;
  graph::Graph graph;
  graph::Graph evaluation_graph;
  std::unique_ptr<data::Dataset> dataset;
  std::unique_ptr<runtime::Device> device;  ///< Its speed and memory may be emulated.
  mutable Progress
      progress;  ///< Progress other than the instructions that the device's clock counts.
  mutable MoveProgress move;
  std::unique_ptr<checkpoint::Writer> writer;
  std::unique_ptr<checkpoint::Writer> replica_writer;  ///< Null: the job keeps no snapshots.
};

}  // namespace heddle::elastic
