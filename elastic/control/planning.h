/// \file
/// The coordinator's request to the planner and the planner's answer, as plain data: planning takes
/// time and must not run inside the state machine, and the state machine knows no graph.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// A worker that the plan may use.
struct Candidate {
  std::string name;
  std::string host;
  std::string profile_json;
  double slowdown = 1;  ///< Measured busy time over the profile's; multiplies its compute seconds.
  bool holds_state = false;  ///< It holds the current plan's state, which the new plan starts from.
};

/// A request for a plan.
struct PlanRequest {
  int64_t id = 0;                     ///< Returned with the outcome.
  int64_t generation = 0;             ///< Plan::generation of the plan to find.
  std::vector<Candidate> candidates;  ///< Sorted by name.
  wire::Links links;                  ///< Measured links between the candidates, in their order.
  /// Where the search starts, and where the state is moved from; empty: there is none.
  std::string current_plan_json;
  std::string former_plan_json;  ///< The only plan that is wanted; empty: the best one.
  /// True: the current plan still runs, and is priced with these candidates (current_step_seconds).
  /// False: all workers wait, so the first good plan is enough.
  bool current_runs = false;
};

/// A plan, and what the coordinator needs to know of it.
struct PlanOutcome {
  int64_t request_id = 0;
  Status status;  ///< Why there is no plan: kResourceExhausted if the model does not fit.
  std::string plan_json;
  std::vector<std::string> members;      ///< Plan::workers, by rank.
  std::vector<uint64_t> program_hashes;  ///< Hashes of the coordinator's own lowering, by rank.
  /// The parameters that each rank holds, ascending. Where groups cut parameters, the pieces
  /// (engine/program/pieces.h), by their numbers among those of all parameters.
  std::vector<std::vector<int32_t>> parameters;
  int32_t parameter_count = 0;  ///< Number of parameters of the model, or of their pieces.
  double predicted_step_seconds = 0;
  /// Seconds of a step of the current plan with the candidates of the request; 0: unknown.
  double current_step_seconds = 0;
  double move_seconds = 0;  ///< Predicted pause of the change.
};

}  // namespace heddle::elastic
