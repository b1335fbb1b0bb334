#include "planner/predictor/cluster.h"

#include <cmath>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

namespace heddle::planner {
namespace {

using Json = nlohmann::json;

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
  return Status::Ok();
}

Status CheckKeys(const Json& object, const std::set<std::string>& keys, const std::string& where) {
  if (!object.is_object()) {
    return InvalidArgumentError("{}: expected an object, got {}", where, object.type_name());
  }
  for (const auto& item : object.items()) {
    if (!keys.contains(item.key())) {
      return InvalidArgumentError("{}: unknown key '{}'", where, item.key());
    }
  }
  for (const std::string& key : keys) {
    if (!object.contains(key)) {
      return InvalidArgumentError("{}: missing key '{}'", where, key);
    }
  }
  return Status::Ok();
}

Result<double> NumberOf(const Json& object, const char* key, const std::string& where) {
  const Json& value = object.at(key);
  if (!value.is_number()) {
    return InvalidArgumentError("{}.{}: expected a number, got {}", where, key, value.type_name());
  }
  return value.get<double>();
}

Result<int> WorkerOf(const Json& object,
                     const char* key,
                     const std::map<std::string, int>& index,
                     const std::string& where) {
  const Json& value = object.at(key);
  if (!value.is_string()) {
    return InvalidArgumentError("{}.{}: expected a worker's name, got {}", where, key,
                                value.type_name());
  }
  const auto found = index.find(value.get<std::string>());
  if (found == index.end()) {
    return InvalidArgumentError("{}.{}: no worker '{}'", where, key, value.get<std::string>());
  }
  return found->second;
}

Status ReadLink(const Json& entry,
                const std::map<std::string, int>& index,
                const std::string& where,
                std::set<std::pair<int, int>>& seen,
                comm::LinkTable& links) {
  HEDDLE_RETURN_IF_ERROR(
      CheckKeys(entry, {"from", "to", "latency_seconds", "bytes_per_second", "transport"}, where));
  HEDDLE_ASSIGN_OR_RETURN(const int from, WorkerOf(entry, "from", index, where));
  HEDDLE_ASSIGN_OR_RETURN(const int to, WorkerOf(entry, "to", index, where));
  if (from == to || !seen.emplace(from, to).second) {
    return InvalidArgumentError("{}: a link from a worker to itself, or given twice", where);
  }
  comm::Link& link = links.At(from, to);
  HEDDLE_ASSIGN_OR_RETURN(link.latency_seconds, NumberOf(entry, "latency_seconds", where));
  HEDDLE_ASSIGN_OR_RETURN(link.bytes_per_second, NumberOf(entry, "bytes_per_second", where));
  if (!entry.at("transport").is_string()) {
    return InvalidArgumentError("{}.transport: expected text, got {}", where,
                                entry.at("transport").type_name());
  }
  link.transport = entry.at("transport").get<std::string>();
  return Status::Ok();
}

Result<ClusterProfile> ReadCluster(const Json& json) {
  HEDDLE_RETURN_IF_ERROR(CheckKeys(json, {"workers", "links"}, "cluster"));
  const Json& workers = json.at("workers");
  const Json& links = json.at("links");
  if (!workers.is_array() || !links.is_array()) {
    return InvalidArgumentError("cluster: 'workers' and 'links' must be lists");
  }
  ClusterProfile cluster;
  std::map<std::string, int> index;
  for (const Json& entry : workers) {
    Result<program::WorkerProfile> profile = program::ProfileFromJson(entry.dump());
    if (!profile.ok()) {
      return profile.status().WithContext("cluster.workers[{}]", cluster.workers.size());
    }
    index.emplace(profile->worker, static_cast<int>(cluster.workers.size()));
    cluster.workers.push_back(*std::move(profile));
  }
  const size_t count = cluster.workers.size();
  if (index.size() != count) {
    return InvalidArgumentError("cluster.workers: a name is given twice");
  }
  if (count > 0 && links.size() != count * (count - 1)) {
    return InvalidArgumentError("cluster.links: expected {} links for {} workers, got {}",
                                count * (count - 1), count, links.size());
  }
  cluster.links = comm::LinkTable(static_cast<int>(count));
  std::set<std::pair<int, int>> seen;
  for (size_t i = 0; i < links.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(
        ReadLink(links[i], index, fmt::format("cluster.links[{}]", i), seen, cluster.links));
  }
  HEDDLE_RETURN_IF_ERROR(ValidateCluster(cluster));
  return cluster;
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

std::string ClusterToJson(const ClusterProfile& cluster) {
  Json json = {{"workers", Json::array()}, {"links", Json::array()}};
  for (const program::WorkerProfile& worker : cluster.workers) {
    json["workers"].push_back(Json::parse(program::ProfileToJson(worker)));
  }
  const int count = cluster.links.size();
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      if (from == to) {
        continue;
      }
      const comm::Link& link = cluster.links.At(from, to);
      json["links"].push_back({{"from", cluster.workers[static_cast<size_t>(from)].worker},
                               {"to", cluster.workers[static_cast<size_t>(to)].worker},
                               {"latency_seconds", link.latency_seconds},
                               {"bytes_per_second", link.bytes_per_second},
                               {"transport", link.transport}});
    }
  }
  return json.dump(1);
}

Result<ClusterProfile> ClusterFromJson(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return InvalidArgumentError("cluster: not valid JSON");
  }
  return ReadCluster(json);
}

}  // namespace heddle::planner
