/// \file
/// A generation as one worker has it: its plan, its share of the state, and what runs on that.
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
#include "engine/runtime/executor.h"
#include "engine/runtime/shared_tensors.h"

namespace heddle::elastic {

/// A plan as this worker runs it. Immutable once made.
struct Lowered {
  program::Plan plan;
  int rank = -1;  ///< -1: not in the plan.
  program::Program training;
  program::Program evaluation;
  int64_t state_bytes = 0;            ///< As StateBytes has them.
  double predicted_busy_seconds = 0;  ///< Of a step, by the profile; 0: unknown.
};

/// State, and what runs on it, of one generation.
struct Generation {
  int64_t number = 0;
  int64_t applied_step = 0;
  int64_t saved_step = -1;                 ///< Whose save was begun last; -1: none's.
  runtime::VoteFlags flags;                ///< Of all workers, at the last vote.
  std::optional<SnapshotKey> snapshot;     ///< From which the state was moved.
  std::shared_ptr<const Lowered> lowered;  // Outlives the executors below.
  /// What this worker saves, in the order in which a step changes it.
  std::vector<program::StateBox> written;
  std::unique_ptr<runtime::ParameterState> state;
  std::unique_ptr<runtime::SharedTensors> shared;  // Before the group: what is in flight ends.
  std::unique_ptr<comm::Communicator> group;
  std::unique_ptr<Replicator> replicator;  ///< Null: no snapshots are kept in memory.
  std::unique_ptr<runtime::Executor> trainer;
  std::unique_ptr<runtime::Executor> evaluator;
};

}  // namespace heddle::elastic
