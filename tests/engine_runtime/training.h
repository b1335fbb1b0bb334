/// \file
/// Small models, unlike plans for them, and training as workers do it: real executors, one thread a
/// worker, over real transports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/graph/models/model.h"
#include "engine/program/plan.h"
#include "engine/program/program.h"
#include "engine/runtime/device/device.h"

namespace heddle::runtime::testing {

inline constexpr int kMicrobatches = 6;
inline constexpr int kSegments = 8;  ///< Of the model: embedding, three layers of two, head.

graph::Graph SmallModel(graph::ModelFamily family,
                        DType compute,
                        double dropout,
                        int64_t sequence_length = 16);

/// By what is special about them: all of kMicrobatches and kSegments.
std::vector<std::pair<std::string, program::Plan>> UnlikePlans();

struct TrainingOptions {
  int64_t steps = 1;
  int microbatches = kMicrobatches;  ///< Of a step; those of the plan.
  bool shm = true;                   ///< Through shared memory, else TCP.
  bool slabs = false;  ///< Messages and sums in memory that workers share (SharedTensors).
  /// Messages in the devices' own memory (DeviceTensors), over the transport "placing".
  bool direct = false;
  /// Called on each worker's thread when the workers have agreed on that.
  std::function<void(int rank)> after_trial = [](int /*rank*/) {};
  /// Of the worker of a rank; called on its thread. Null: there is none, and the run fails.
  std::function<std::unique_ptr<Device>(int rank)> make_device;
  /// Called with each worker's device after its last step, before its weights are read.
  std::function<void(Device& device)> after_steps = [](Device& /*device*/) {};
  /// Called with each worker's device when it has trained.
  std::function<void(Device& device)> look_at = [](Device& /*device*/) {};
};

struct Trained {
  Status status;                ///< The first worker's that failed.
  std::vector<double> losses;   ///< By step.
  std::vector<double> seconds;  ///< The same, of the first worker.
  int64_t device_sums = 0;      ///< Sums of gradients that devices made, of all workers and steps.
  std::map<std::string, std::vector<std::byte>> masters = {};
};

/// Trains under `plan` with one thread a worker. Fails the test where holders of a parameter
/// differ.
Trained Train(const graph::Graph& graph, const program::Plan& plan, const TrainingOptions& options);

/// What one worker runs.
struct WorkerPart {
  const graph::Graph* graph = nullptr;  ///< That whose nodes the Program names.
  const program::Program* program = nullptr;
};
/// The same for given Programs, by rank. Fails the test also where an element of a parameter has no
/// holder.
Trained Train(const std::vector<WorkerPart>& parts, const TrainingOptions& options);

}  // namespace heddle::runtime::testing
