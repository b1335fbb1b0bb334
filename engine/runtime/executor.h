/// \file
/// Runs a Program: what one worker does in a step, as a transaction. ComputeGradients runs
/// everything up to the vote and applies nothing; Vote exchanges norms and losses; Apply updates
/// the state. Everything is queued on the worker's device, for which the host waits in the vote
/// alone. Sends and receives progress on the communicator's threads, reductions on a thread of the
/// executor's own, beside compute.
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
#include "engine/runtime/parameter_state.h"
#include "engine/runtime/shared_tensors.h"
#include "engine/runtime/vote.h"

namespace heddle::runtime {

struct ExecutorOptions {
  const graph::Graph* graph = nullptr;  ///< Outlives the executor, like everything else here.
  const program::Program* program = nullptr;
  ParameterState* state = nullptr;
  comm::Communicator* group = nullptr;  ///< nullptr: only when the program has one worker.
  SharedTensors* shared = nullptr;      ///< For messages and sums; nullptr: ordinary memory.
  Device* device = nullptr;             ///< That of `state`.
  SampleReader read_sample;
  /// Called before the optimizer changes the state of a parameter, in the Program's order of
  /// updates: whoever still reads that state waits here. Empty: nobody does.
  std::function<void(graph::ParameterId)> before_update = {};
  Progress* progress = nullptr;  ///< Where waits for other workers are told; nullptr: nowhere.
  uint64_t seed = 0;
  int microbatches = 1;          ///< Of the global batch.
  int64_t memory_cap_bytes = 0;  ///< Live values and state above it: kResourceExhausted; 0: none.
};

struct StepStats {
  double busy_seconds = 0;     ///< Device time in compute instructions that have ended.
  double waiting_seconds = 0;  ///< In receives and for reductions.
  int64_t peak_bytes = 0;      ///< Largest sum of live values.
};

/// Thread: one caller at a time; Abort of the communicator ends its waits.
class Executor {
 public:
  explicit Executor(ExecutorOptions options);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs step `step` (1, 2, …) up to the vote. Its samples start at (step - 1) * global batch;
  /// `first_sample` is that number. On return all reductions this worker takes part in are
  /// complete. The gradients are kept until the next call. Errors: those of the communicator, the
  /// reader and the device; nothing was applied.
  Status ComputeGradients(int64_t step, int64_t first_sample);
  /// Exchanges records; `flags` are this worker's. Errors: the communicator's and the device's.
  Result<VoteOutcome> Vote(int64_t step, const VoteFlags& flags = {});
  /// Applies AdamW with this step's gradients. `norm` is the vote's. Precondition: ComputeGradients
  /// succeeded for `step` (also with a norm that other workers told, after a loss). An error of the
  /// device comes out of the next call.
  void Apply(int64_t step, double norm, double learning_rate);
  /// Step whose gradients are complete and not yet applied; 0: none.
  int64_t pending_step() const;
  const StepStats& figures() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::runtime
