#include "elastic/planning/profile_file.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "checkpoint/format/strict_json.h"
#include "engine/graph/operator.h"

namespace heddle::elastic {
namespace {

constexpr int kVersion = 1;
constexpr int kMostDepth = 16;  ///< Twice what it needs; what is deep would end the stack.

Status CheckMeasuredAs(const MeasuredWorker& there,
                       const job::WorkerSection& wanted,
                       int64_t threads) {
  const auto differs = [&](const char* what, auto measured, auto asked) {
    return InvalidArgumentError(
        "worker {} was measured with {} {}, the job has {}: measure again with --save-profile",
        wanted.name, what, measured, asked);
  };
  if (there.speed != wanted.emulation.speed) {
    return differs("emulate.speed", there.speed, wanted.emulation.speed);
  }
  if (there.link_bytes_per_second != wanted.emulation.link_bytes_per_second) {
    return differs("emulate.link (bytes a second)", there.link_bytes_per_second,
                   wanted.emulation.link_bytes_per_second);
  }
  if (there.threads != threads) {
    return differs("threads", there.threads, threads);
  }
  return Status::Ok();
}

}  // namespace

std::string ProfileFileToJson(const std::vector<MeasuredWorker>& workers) {
  nlohmann::json list = nlohmann::json::array();
  for (const MeasuredWorker& each : workers) {
    list.push_back({{"worker", each.worker},
                    {"measured_at", each.measured_at},
                    {"speed", each.speed},
                    {"link_bytes_per_second", each.link_bytes_per_second},
                    {"threads", each.threads},
                    {"measurement", nlohmann::json::parse(MeasurementToJson(each.measurement))}});
  }
  const nlohmann::json file = {{"profile_file", kVersion}, {"workers", std::move(list)}};
  return file.dump(1) + "\n";
}

Result<std::vector<MeasuredWorker>> ProfileFileFromJson(std::string_view json) {
  const Result<nlohmann::json> read = checkpoint::ParseStrictJson(json, kMostDepth);
  if (!read.ok()) {
    return InvalidArgumentError("no profile file: {}", read.status().message());
  }
  std::vector<MeasuredWorker> workers;
  try {
    const nlohmann::json& file = *read;
    const int version = file.at("profile_file").get<int>();
    if (version != kVersion) {
      return InvalidArgumentError("profile_file is {}, this program reads {}", version, kVersion);
    }
    for (const nlohmann::json& entry : file.at("workers")) {
      MeasuredWorker& each = workers.emplace_back();
      each.worker = entry.at("worker").get<std::string>();
      each.measured_at = entry.at("measured_at").get<double>();
      each.speed = entry.at("speed").get<double>();
      each.link_bytes_per_second = entry.at("link_bytes_per_second").get<double>();
      each.threads = entry.at("threads").get<int64_t>();
      Result<WorkerMeasurement> measurement = MeasurementFromJson(entry.at("measurement").dump());
      if (!measurement.ok()) {
        return measurement.status().WithContext("worker {}", each.worker.substr(0, 64));
      }
      each.measurement = *std::move(measurement);
    }
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgumentError("no profile file: {}", error.what());
  }
  return workers;
}

Result<std::vector<MeasuredWorker>> WorkersOfJob(const std::vector<MeasuredWorker>& file,
                                                 const job::JobConfig& job,
                                                 const graph::Graph& graph) {
  std::vector<MeasuredWorker> workers;
  for (const job::WorkerSection& wanted : job.workers) {
    const auto found = std::find_if(file.begin(), file.end(), [&](const MeasuredWorker& each) {
      return each.worker == wanted.name;
    });
    if (found == file.end()) {
      return InvalidArgumentError("worker {} of the job is not in it", wanted.name);
    }
    HEDDLE_RETURN_IF_ERROR(CheckMeasuredAs(*found, wanted, job.threads));
    for (const graph::Node& node : graph.nodes) {
      const std::string signature = graph::NodeSignature(graph, node);
      if (!found->measurement.profile.seconds.contains(signature)) {
        return InvalidArgumentError(
            "worker {} was measured with another model (it lacks {}): measure again with "
            "--save-profile",
            wanted.name, signature);
      }
    }
    workers.push_back(*found);
    workers.back().measurement.profile.memory_bytes = wanted.emulation.memory_bytes;
  }
  return workers;
}

}  // namespace heddle::elastic
