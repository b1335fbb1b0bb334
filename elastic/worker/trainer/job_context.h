/// \file
/// What a worker is given for a job, and what it makes of that before the first plan comes.
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
  std::string worker;  ///< Own name.
  job::JobConfig job;
  JobPolicy policy;
  std::string output_folder;
  job::Emulation emulation;
  comm::EndpointOptions endpoint_options;  ///< With the job's identity and secret.
  comm::Endpoint* endpoint = nullptr;      ///< These outlive the trainer.
  metrics::Registry* registry = nullptr;
  std::function<void(MemberEvent)> post;  ///< Where events go; thread-safe, never blocks.
  /// What the worker computes on.
  std::function<Result<std::unique_ptr<runtime::Device>>(const runtime::DeviceOptions&)>
      open_device =
          [](const runtime::DeviceOptions& device) { return runtime::OpenDevice("cpu", device); };
};

/// A worker waits so long for others that move state. Slow links alone never reach it: what ends a
/// move that stands still is the coordinator, which sees everybody's progress, and a worker that
/// hears of no coordinator gives up by itself (elastic/member/member.h).
inline constexpr Duration kLongestMove = std::chrono::hours(24);

/// Nothing here changes with the plan.
struct JobContext {
  /// Builds the graphs, opens the data. Errors: kInvalidArgument when the job does not fit this
  /// machine (data missing or different, …).
  static Result<std::unique_ptr<JobContext>> Create(TrainerOptions options);
  explicit JobContext(TrainerOptions options);
  /// Thread: any.
  void SetEmulation(const job::Emulation& emulation);

  const TrainerOptions options;
  mutable TrainerFigures figures;
  graph::Graph graph;
  graph::Graph evaluation_graph;
  std::unique_ptr<data::Dataset> dataset;
  std::unique_ptr<runtime::Device> device;  ///< Its speed and memory may be emulated.
  mutable Progress progress;                ///< Beside what the device's clock counts.
  mutable MoveProgress move;
  std::unique_ptr<checkpoint::Writer> writer;
  std::unique_ptr<checkpoint::Writer> replica_writer;  ///< Null: the job keeps no snapshots.
};

}  // namespace heddle::elastic
