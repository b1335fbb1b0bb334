/// \file
/// The cluster as the planner sees it: the measured profile of each worker, and the links between
/// workers.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/cost/cost.h"
#include "engine/program/profile.h"

namespace heddle::planner {

/// Workers and links of one membership; index i of `workers` is index i of `links`.
struct ClusterProfile {
  std::vector<program::WorkerProfile> workers;
  comm::LinkTable links;
};

/// OK if sizes match, names are unique and not empty, and every rate is finite and usable.
/// Errors: kInvalidArgument naming the worker or the pair.
Status ValidateCluster(const ClusterProfile& cluster);

/// The part of `cluster` that consists of `names`, in that order.
/// Errors: kInvalidArgument naming a worker that the cluster lacks, or the duplicate.
Result<ClusterProfile> SelectWorkers(const ClusterProfile& cluster,
                                     std::span<const std::string> names);

}  // namespace heddle::planner
