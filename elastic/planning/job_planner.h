/// \file
/// Answers the plan requests of the coordinator and of `heddle plan`: builds the job's graph, reads
/// the candidates' measurements, and asks the planner.
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

/// Converts a job's plan request into a request to the planner, which refers to `graph`, the job's
/// graph. Errors: kInvalidArgument naming the worker or the link whose figures are malformed.
Result<planner::SearchRequest> SearchFor(const job::JobConfig& job,
                                         const graph::Graph& graph,
                                         const PlanRequest& request);

/// Answers plan requests; keeps the graph of the last job. Thread: any.
class JobPlanner {
 public:
  /// Finds a plan. If there is none, the outcome's status has the reason; kResourceExhausted: no
  /// combination of these workers has the memory for the model (more workers may). `stop`: once
  /// requested, the search ends soon, with kCancelled.
  PlanOutcome Plan(const Job& job, const PlanRequest& request, const std::stop_token& stop = {});

 private:
  /// A job file and its graph.
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
