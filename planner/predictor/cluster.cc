#include "planner/predictor/cluster.h"

#include <cmath>
#include <map>
#include <set>

namespace heddle::planner {
namespace {

bool Usable(double value) {
  return std::isfinite(value) && value >= 0;
}

Status CheckLink(const ClusterProfile& cluster, int from, int to) {
  const comm::Link& link = cluster.links.At(from, to);
  if (!Usable(link.latency_seconds) || !std::isfinite(link.bytes_per_second) ||
      link.bytes_per_second <= 0) {
    return InvalidArgumentError("link {} -> {}: latency {} s and {} bytes/s are not usable",
                                cluster.workers[static_cast<size_t>(from)].worker,
                                cluster.workers[static_cast<size_t>(to)].worker,
                                link.latency_seconds, link.bytes_per_second);
  }
  if (!Usable(link.peer_bytes_per_second)) {
    return InvalidArgumentError("link {} -> {}: {} bytes/s between devices are not usable",
                                cluster.workers[static_cast<size_t>(from)].worker,
                                cluster.workers[static_cast<size_t>(to)].worker,
                                link.peer_bytes_per_second);
  }
  return Status::Ok();
}

}  // namespace

Status ValidateCluster(const ClusterProfile& cluster) {
  const int count = static_cast<int>(cluster.workers.size());
  if (cluster.links.size() != count) {
    return InvalidArgumentError("cluster has {} workers but links for {}", count,
                                cluster.links.size());
  }
  std::set<std::string> names;
  for (const program::WorkerProfile& worker : cluster.workers) {
    if (worker.worker.empty() || !names.insert(worker.worker).second) {
      return InvalidArgumentError("worker name '{}' is empty or used twice", worker.worker);
    }
    bool usable = Usable(worker.flops_per_second) && Usable(worker.bytes_per_second) &&
                  Usable(worker.instruction_seconds) && worker.memory_bytes >= 0;
    for (const auto& entry : worker.seconds) {
      usable = usable && Usable(entry.second);
    }
    if (!usable) {
      return InvalidArgumentError("profile of worker '{}' holds a negative or infinite value",
                                  worker.worker);
    }
  }
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      if (from != to) {
        HEDDLE_RETURN_IF_ERROR(CheckLink(cluster, from, to));
      }
    }
  }
  return Status::Ok();
}

Result<ClusterProfile> SelectWorkers(const ClusterProfile& cluster,
                                     std::span<const std::string> names) {
  std::map<std::string_view, int> index;
  for (size_t i = 0; i < cluster.workers.size(); ++i) {
    index.emplace(cluster.workers[i].worker, static_cast<int>(i));
  }
  ClusterProfile selected;
  std::vector<int> ranks;
  std::set<std::string_view> seen;
  for (const std::string& name : names) {
    const auto found = index.find(name);
    if (found == index.end() || !seen.insert(name).second) {
      return InvalidArgumentError("worker '{}' {}", name,
                                  found == index.end() ? "has no profile" : "is named twice");
    }
    ranks.push_back(found->second);
    selected.workers.push_back(cluster.workers[static_cast<size_t>(found->second)]);
  }
  const int count = static_cast<int>(ranks.size());
  selected.links = comm::LinkTable(count);
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      selected.links.At(from, to) =
          cluster.links.At(ranks[static_cast<size_t>(from)], ranks[static_cast<size_t>(to)]);
    }
  }
  return selected;
}

}  // namespace heddle::planner
