/// \file
/// A generation on one worker: its plan, the worker's share of the state, and the executors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "elastic/worker/replicas/replica_store.h"
#include "elastic/worker/replicas/replicator.h"
#include "engine/program/program.h"
#include "engine/program/state.h"
#include "engine/runtime/device_tensors.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/shared_tensors.h"

namespace heddle::elastic {

/// A plan, lowered for this worker. Immutable once made.
struct Lowered {
  program::Plan plan;
  int rank = -1;  ///< -1: not in the plan.
  program::Program training;
  program::Program evaluation;
  /// The graphs whose nodes they run: the job's, or this worker's as a member of a group.
  std::shared_ptr<const graph::Graph> training_graph;
  std::shared_ptr<const graph::Graph> evaluation_graph;
  int64_t state_bytes = 0;            ///< Bytes of state, as by program::StateBytes.
  double predicted_busy_seconds = 0;  ///< Compute time of a step by the profile; 0: unknown.
};

/// A generation's state and executors.
struct Generation {
  int64_t number = 0;
  int64_t applied_step = 0;
  int64_t saved_step = -1;                 ///< Step of the last save that was begun; -1: none.
  runtime::VoteFlags flags;                ///< The flags of all workers in the last vote.
  std::optional<SnapshotKey> snapshot;     ///< The snapshot that the state was moved from, if any.
  std::shared_ptr<const Lowered> lowered;  // Outlives the executors below.
  /// The boxes that this worker saves, in the order in which a step changes them.
  std::vector<program::StateBox> written;
  std::unique_ptr<runtime::ParameterState> state;
  std::unique_ptr<runtime::SharedTensors> shared;  // Outlives the group, whose messages may use it.
  std::unique_ptr<runtime::DeviceTensors> direct;  // The same.
  std::unique_ptr<comm::Communicator> group;
  std::unique_ptr<Replicator> replicator;  ///< Null: no snapshots are kept in memory.
  std::unique_ptr<runtime::Executor> trainer;
  std::unique_ptr<runtime::Executor> evaluator;
};

}  // namespace heddle::elastic
