/// \file
/// Static check of a set of Programs: every send has its receive with the same type, no deadlock
/// under asynchronous sends, every read value is live and freed exactly once, every microbatch's
/// nodes run exactly once, every parameter's contributions cover all microbatches and uses exactly
/// once on every holder, collectives are issued in one order, every held parameter is updated once.
/// Of groups: what members run together is the job's graph (verify_stage_graph.h), each runs its
/// share of it, all make the same exchanges in one order, nothing is read or freed while an exchange
/// is in flight, and copies of a gradient are counted once.
#pragma once

#include <vector>

#include "base/status.h"
#include "engine/program/program.h"

namespace heddle::program {

/// The workers whose instructions are followed.
enum class VerifyScope : uint8_t {
  kEveryWorker,
  /// Only the workers of one pipeline of each class of equivalent pipelines (verify_classes.h).
  /// What it adds to a reduction stands for what the others add. Headers and votes are checked for
  /// every worker.
  kEveryClass,
};

/// Verifies `programs`, the programs of all workers by rank. Cost: linear in the instructions that
/// are followed. Errors: kInternal naming worker and instruction.
Status Verify(const graph::Graph& graph,
              const Plan& plan,
              const std::vector<Program>& programs,
              VerifyScope scope = VerifyScope::kEveryWorker);

}  // namespace heddle::program
