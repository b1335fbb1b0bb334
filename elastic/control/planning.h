/// \file
/// What the coordinator asks of the planner and gets back, as plain data: planning takes time and
/// must not run inside the state machine, and the state machine knows no graph.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// A worker that may take part.
struct Candidate {
  std::string name;
  std::string host;
  std::string profile_json;
  double slowdown = 1;  ///< Measured busy time over the profile's; multiplies its compute seconds.
  bool holds_state = false;  ///< Of the current plan, valid for the state to go on from.
};

struct PlanRequest {
  int64_t id = 0;                     ///< Returned with the outcome.
  int64_t generation = 0;             ///< Plan::generation of the plan to find.
  std::vector<Candidate> candidates;  ///< Sorted by name.
  wire::Links links;                  ///< What was measured, by candidate.
  std::string
      current_plan_json;  ///< Empty: none. Warm start, and what moving costs is counted from it.
  std::string former_plan_json;  ///< This plan, and no other, is wanted; empty: the best one.
  /// The current plan still runs: price it under today's candidates (current_step_seconds).
  /// Otherwise it cannot go on, everybody waits, and the first good plan is welcome.
  bool current_runs = false;
};

/// A plan, and what the coordinator needs to know of it.
struct PlanOutcome {
  int64_t request_id = 0;
  Status status;  ///< Why there is none: kResourceExhausted when the model does not fit.
  std::string plan_json;
  std::vector<std::string> members;              ///< Plan::workers, by rank.
  std::vector<uint64_t> program_hashes;          ///< Of the coordinator's own lowering, by rank.
  std::vector<std::vector<int32_t>> parameters;  ///< Held by each rank, ascending.
  int32_t parameter_count = 0;                   ///< Of the model.
  double predicted_step_seconds = 0;
  double current_step_seconds = 0;  ///< Of the current plan under today's candidates; 0: unknown.
  double move_seconds = 0;          ///< Predicted pause of the change.
};

}  // namespace heddle::elastic
