#include "elastic/planning/profile_file.h"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "checkpoint/format/strict_json.h"
#include "elastic/planning/links_json.h"
#include "elastic/protocol/link_figures.h"

namespace heddle::elastic {
namespace {

constexpr int kVersion = 3;
constexpr int kMaxDepth = 16;  ///< Twice what it needs; what is deep would end the stack.
// Beyond these no worker trains.
constexpr double kLeastSlowdown = 1e-6;
constexpr double kMaxSlowdown = 1e6;

Status CheckMeasuredAs(const WorkerMeasurement& there,
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

Status CheckModel(const MeasuredWorker& worker, const program::ProfiledWork& work) {
  for (const program::ProfiledWork::Part& part : work.parts) {
    if (!worker.measurement.profile.seconds.contains(part.signature)) {
      return InvalidArgumentError(
          "worker {} was measured with another {} (it lacks {}): measure again with --save-profile",
          worker.worker, part.graph == 0 ? "model" : "parallel.tensor or plan", part.signature);
    }
  }
  return Status::Ok();
}

// `links` between those at `positions`, in this order.
wire::Links LinksOf(const wire::Links& links, const std::vector<int>& positions) {
  wire::Links chosen;
  if (links.places_size() == 0) {
    return chosen;
  }
  std::map<int32_t, int32_t> numbers;  // By place of the file.
  for (const int position : positions) {
    const auto number = static_cast<int32_t>(numbers.size());
    chosen.add_places(numbers.emplace(links.places(position), number).first->second);
  }
  for (const wire::Links::Pair& pair : links.pairs()) {
    const auto a = numbers.find(pair.a());
    const auto b = numbers.find(pair.b());
    if (a != numbers.end() && b != numbers.end()) {
      AddPair(a->second, b->second, {pair.transports().begin(), pair.transports().end()}, chosen);
    }
  }
  return chosen;
}

}  // namespace

std::string ProfileFileToJson(const ProfileFile& file) {
  nlohmann::json workers = nlohmann::json::array();
  for (const MeasuredWorker& each : file.workers) {
    workers.push_back(
        {{"worker", each.worker},
         {"host", each.host},
         {"slowdown", each.slowdown},
         {"measurement", nlohmann::json::parse(MeasurementToJson(each.measurement))}});
  }
  const nlohmann::json json = {{"profile_file", kVersion},
                               {"workers", std::move(workers)},
                               {"links", nlohmann::json::parse(LinksToJson(file.links))}};
  return json.dump(1) + "\n";
}

Result<ProfileFile> ProfileFileFromJson(std::string_view json) {
  const Result<nlohmann::json> read = checkpoint::ParseStrictJson(json, kMaxDepth);
  if (!read.ok()) {
    return InvalidArgumentError("no profile file: {}", read.status().message());
  }
  ProfileFile file;
  try {
    const int version = read->at("profile_file").get<int>();
    if (version != kVersion) {
      return InvalidArgumentError("profile_file is {}, this program reads {}", version, kVersion);
    }
    for (const nlohmann::json& entry : read->at("workers")) {
      MeasuredWorker& each = file.workers.emplace_back();
      each.worker = entry.at("worker").get<std::string>();
      each.host = entry.at("host").get<std::string>();
      each.slowdown = entry.at("slowdown").get<double>();
      Result<WorkerMeasurement> measurement = MeasurementFromJson(entry.at("measurement").dump());
      if (!measurement.ok()) {
        return measurement.status().WithContext("worker {}", each.worker.substr(0, 64));
      }
      if (!(each.slowdown >= kLeastSlowdown && each.slowdown <= kMaxSlowdown)) {
        return InvalidArgumentError("worker {}: slowdown is {}, expected {} to {}",
                                    each.worker.substr(0, 64), each.slowdown, kLeastSlowdown,
                                    kMaxSlowdown);
      }
      each.measurement = *std::move(measurement);
    }
    HEDDLE_ASSIGN_OR_RETURN(
        file.links, LinksFromJson(read->at("links").dump(), static_cast<int>(file.workers.size())));
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgumentError("no profile file: {}", error.what());
  }
  return file;
}

Result<std::string> ProfileFileJsonOf(const PlanRequest& request) {
  ProfileFile file;
  file.links = request.links;
  for (const Candidate& candidate : request.candidates) {
    MeasuredWorker& worker = file.workers.emplace_back(MeasuredWorker{
        .worker = candidate.name, .host = candidate.host, .slowdown = candidate.slowdown});
    Result<WorkerMeasurement> measurement = MeasurementFromJson(candidate.profile_json);
    if (!measurement.ok()) {
      return measurement.status().WithContext("worker {}", candidate.name);
    }
    worker.measurement = *std::move(measurement);
  }
  return ProfileFileToJson(file);
}

Result<PlanRequest> PlanRequestOf(const ProfileFile& file,
                                  const job::JobConfig& job,
                                  const graph::Graph& graph) {
  std::map<std::string, const job::WorkerSection*> wanted;
  for (const job::WorkerSection& worker : job.workers) {
    wanted[worker.name] = &worker;
  }
  HEDDLE_ASSIGN_OR_RETURN(const program::ProfiledWork work, WorkToMeasure(job, graph));
  PlanRequest request;
  request.generation = 1;
  std::vector<int> positions;
  for (const auto& [name, section] : wanted) {
    const auto found = std::ranges::find(file.workers, name, &MeasuredWorker::worker);
    if (found == file.workers.end()) {
      return InvalidArgumentError("worker {} of the job is not in it", name);
    }
    HEDDLE_RETURN_IF_ERROR(CheckMeasuredAs(found->measurement, *section, job.threads));
    HEDDLE_RETURN_IF_ERROR(CheckModel(*found, work));
    WorkerMeasurement measurement = found->measurement;
    program::WorkerProfile& profile = measurement.profile;
    const int64_t given = section->emulation.memory_bytes;
    const int64_t alone = measurement.card_bytes;
    profile.memory_bytes = alone == 0 ? given
                                      : PlannedBytes(given == 0 ? alone : std::min(given, alone),
                                                     profile.scratch_bytes);
    request.candidates.push_back({.name = name,
                                  .host = found->host,
                                  .profile_json = MeasurementToJson(measurement),
                                  .slowdown = found->slowdown});
    positions.push_back(static_cast<int>(found - file.workers.begin()));
  }
  request.links = LinksOf(file.links, positions);
  return request;
}

}  // namespace heddle::elastic
