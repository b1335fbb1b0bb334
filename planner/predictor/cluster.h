/// \file
/// The cluster as the planner sees it: what each worker was measured to do, and the links between
/// them.
#pragma once

#include <span>
#include <string>
#include <string_view>
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

/// Checks sizes, names (unique, not empty), and that every rate is finite and usable.
/// Errors: kInvalidArgument naming the worker or the pair.
Status ValidateCluster(const ClusterProfile& cluster);

/// The part of `cluster` that consists of `names`, in that order.
/// Errors: kInvalidArgument naming a worker that the cluster lacks, or the duplicate.
Result<ClusterProfile> SelectWorkers(const ClusterProfile& cluster,
                                     std::span<const std::string> names);

/// One JSON object {"workers": [profile, …], "links": [{"from", "to", "latency_seconds",
/// "bytes_per_second", "transport"}, …]}; links from a worker to itself are left out.
std::string ClusterToJson(const ClusterProfile& cluster);

/// Strict inverse: unknown, missing and duplicate entries are errors.
/// Errors: kInvalidArgument naming the key.
Result<ClusterProfile> ClusterFromJson(std::string_view json);

}  // namespace heddle::planner
