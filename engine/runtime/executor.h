/// \file
/// The executor runs a Program: one worker's part of a step, as a transaction. ComputeGradients
/// runs the instructions before the vote and changes no state, Vote exchanges norms and losses, and
/// Apply updates the state. Compute is queued on the worker's device, and the host waits for it in
/// Vote alone. Sends, receives and exchanges progress on the communicator's threads, and reductions
/// on a thread of the executor, while the device computes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/progress.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "engine/program/program.h"
#include "engine/runtime/batch.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/device_tensors.h"
#include "engine/runtime/parameter_state.h"
#include "engine/runtime/shared_tensors.h"
#include "engine/runtime/vote.h"

namespace heddle::runtime {

/// The inputs of an executor. Everything that a pointer refers to outlives the executor.
struct ExecutorOptions {
  /// The graph whose nodes and tensors `program` names; for a member of a group, its local graph.
  const graph::Graph* graph = nullptr;
  const program::Program* program = nullptr;  ///< The worker's program.
  ParameterState* state = nullptr;            ///< The worker's state, which Apply changes.
  comm::Communicator* group = nullptr;        ///< May be null if the program has one worker.
  SharedTensors* shared = nullptr;  ///< Memory of messages and sums; null: ordinary memory.
  DeviceTensors* direct = nullptr;  ///< The device's memory of messages; null: the host's.
  Device* device = nullptr;         ///< The device of `state`.
  SampleReader read_sample;         ///< Reads the tokens of the step.
  /// Called before the optimizer changes the state of a parameter, in the Program's order of
  /// updates. It waits until the parameter's state is not read any more, as by a save. Empty:
  /// updates do not wait.
  std::function<void(graph::ParameterId)> before_update = {};
  Progress* progress = nullptr;  ///< Records waits for other workers; null: not recorded.
  uint64_t seed = 0;             ///< The job's seed, for dropout.
  int microbatches = 1;          ///< The microbatches of the global batch, of all workers.
  /// The most bytes of a step's live values; above it ComputeGradients fails. 0: no limit.
  int64_t memory_cap_bytes = 0;
};

/// Measurements of one step of one worker.
struct StepStats {
  double busy_seconds = 0;     ///< The device's time in compute that has ended.
  double waiting_seconds = 0;  ///< The time spent waiting in receives and for reductions.
  int64_t peak_bytes = 0;      ///< The largest sum of the bytes of live values.
  int64_t device_sums = 0;     ///< Sums of gradients that the members' devices made.
};

/// Runs the steps of one Program. Aborting the communicator ends the waits for other workers.
/// Thread: one caller at a time.
class Executor {
 public:
  /// Precondition: `group` is set if the program has several workers.
  explicit Executor(ExecutorOptions options);
  /// Waits until the device has ended what is queued.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Computes the gradients of step `step` (1, 2, …), whose first sample has number `first_sample`.
  /// On success all reductions that this worker takes part in are complete, and the gradients are
  /// kept until the next call. The state does not change. Errors: those of the communicator, of
  /// `read_sample` and of the device; kInternal (a kernel failed); kResourceExhausted (the live
  /// values exceed `memory_cap_bytes`). After an error the group is aborted.
  Status ComputeGradients(int64_t step, int64_t first_sample);
  /// Exchanges the norms, losses and `flags` of the step with all workers, and returns the result,
  /// which is the same on all of them. Waits for the device. Precondition: ComputeGradients
  /// succeeded for `step`. Errors: those of the communicator and of the device; kDataLoss and
  /// kInternal (the records are malformed or do not fit together).
  Result<VoteOutcome> Vote(int64_t step, const VoteFlags& flags = {});
  /// Updates the state by AdamW with the gradients of `step`. `norm` is the vote's gradient norm;
  /// after a loss it may come from other workers instead of this one's vote. Precondition:
  /// pending_step() is `step`. Does not wait for the device, whose error the next call returns.
  void Apply(int64_t step, double norm, double learning_rate);
  /// Returns the step whose gradients are complete and not applied; 0: there is none.
  int64_t pending_step() const;
  /// Returns the measurements of the newest step, complete after its Apply.
  const StepStats& figures() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::runtime
