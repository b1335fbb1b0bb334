/// \file
/// Answers plan requests, the coordinator's and those of `heddle plan`: the job's graph, the
/// candidates' measurements, the planner.
#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "base/mutex.h"
#include "elastic/control/planning.h"
#include "elastic/control/policy.h"
#include "engine/graph/graph.h"
#include "engine/job/job.h"
#include "planner/search/search.h"

namespace heddle::elastic {

/// The planner's question that `request` is for a job. `graph` is the job's, and outlives it.
/// Errors: kInvalidArgument naming the worker or the link whose figures are none.
Result<planner::PlanRequest> SearchFor(const job::JobConfig& job,
                                       const graph::Graph& graph,
                                       const PlanRequest& request);

/// Thread: any.
class JobPlanner {
 public:
  /// Never fails: a request without an answer has the reason in its status. kResourceExhausted: no
  /// combination of these workers has the memory for the model (more workers may).
  /// `stop`: once requested, the answer soon comes without a plan, kCancelled.
  PlanOutcome Plan(const Job& job, const PlanRequest& request, const std::stop_token& stop = {});

 private:
  struct Parsed {
    std::string id;
    job::JobConfig config;
    graph::Graph graph;
  };
  Result<std::shared_ptr<const Parsed>> Parse(const Job& job);

  Mutex mutex_;
  std::shared_ptr<const Parsed> parsed_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::elastic
