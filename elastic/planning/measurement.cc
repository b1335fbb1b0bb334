#include "elastic/planning/measurement.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "checkpoint/format/strict_json.h"
#include "elastic/planning/shared_cards.h"
#include "elastic/protocol/link_figures.h"
#include "engine/graph/sharding/tensor_parallel.h"
#include "engine/program/memory.h"

namespace heddle::elastic {
namespace {

// Beyond these no machine is, and sums and quotients of them mean nothing.
constexpr double kMaxPerSecond = 1e21;
constexpr double kMaxSeconds = 1e5;
constexpr int kMaxDepth = 8;  ///< A profile needs three; what is deep would end the stack.

Status CheckLink(const MeasuredLink& measured) {
  const comm::Link& link = measured.link;
  const bool sound =
      link.latency_seconds >= 0 && link.latency_seconds <= kMaxSeconds &&
      link.bytes_per_second >= 1 && link.bytes_per_second <= kMaxPerSecond &&
      measured.latency_spread_seconds >= 0 && measured.latency_spread_seconds <= kMaxSeconds &&
      measured.bytes_per_second_spread >= 0 && measured.bytes_per_second_spread <= kMaxPerSecond &&
      measured.measured_at >= 0 && measured.measured_at <= kMaxPerSecond;
  return sound ? Status::Ok()
               : InvalidArgumentError(
                     "measurement: link: latency {} ± {} s and {} ± {} bytes a second, measured at "
                     "{}, are no link",
                     link.latency_seconds, measured.latency_spread_seconds, link.bytes_per_second,
                     measured.bytes_per_second_spread, measured.measured_at);
}

Status Check(const WorkerMeasurement& measurement) {
  const program::WorkerProfile& profile = measurement.profile;
  for (const auto& [name, rate] : {std::pair("flops_per_second", profile.flops_per_second),
                                   std::pair("bytes_per_second", profile.bytes_per_second)}) {
    if (!(rate >= 1 && rate <= kMaxPerSecond)) {
      return InvalidArgumentError("measurement: {} is {}, expected 1 to {}", name, rate,
                                  kMaxPerSecond);
    }
  }
  if (!(profile.instruction_seconds <= kMaxSeconds)) {
    return InvalidArgumentError("measurement: instruction_seconds is {}, expected at most {}",
                                profile.instruction_seconds, kMaxSeconds);
  }
  for (const auto& [what, seconds] : profile.seconds) {
    if (!(seconds <= kMaxSeconds)) {
      return InvalidArgumentError("measurement: {} takes {} s, expected at most {}",
                                  what.substr(0, 64), seconds, kMaxSeconds);
    }
  }
  if (!(measurement.speed > 0 && measurement.speed <= kMaxPerSecond) ||
      !(measurement.link_bytes_per_second >= 0 &&
        measurement.link_bytes_per_second <= kMaxPerSecond) ||
      measurement.threads < 1 || measurement.card_bytes < 0 ||
      !(measurement.peer_bytes_per_second >= 0 &&
        measurement.peer_bytes_per_second <= kMaxPerSecond) ||
      !(measurement.profile_measured_at >= 0 && measurement.profile_measured_at <= kMaxPerSecond)) {
    return InvalidArgumentError(
        "measurement: speed {}, link_bytes_per_second {}, threads {}, card_bytes {}, "
        "peer_bytes_per_second {} and profile_measured_at {} are those of no worker",
        measurement.speed, measurement.link_bytes_per_second, measurement.threads,
        measurement.card_bytes, measurement.peer_bytes_per_second, measurement.profile_measured_at);
  }
  return CheckLink(measurement.link);
}

nlohmann::json JsonOf(const MeasuredLink& measured) {
  return {{"latency_seconds", measured.link.latency_seconds},
          {"bytes_per_second", measured.link.bytes_per_second},
          {"transport", measured.link.transport},
          {"latency_spread_seconds", measured.latency_spread_seconds},
          {"bytes_per_second_spread", measured.bytes_per_second_spread},
          {"measured_at", measured.measured_at}};
}

MeasuredLink LinkOf(const nlohmann::json& json) {
  MeasuredLink measured;
  measured.link.latency_seconds = json.at("latency_seconds").get<double>();
  measured.link.bytes_per_second = json.at("bytes_per_second").get<double>();
  measured.link.transport = json.at("transport").get<std::string>();
  measured.latency_spread_seconds = json.at("latency_spread_seconds").get<double>();
  measured.bytes_per_second_spread = json.at("bytes_per_second_spread").get<double>();
  measured.measured_at = json.at("measured_at").get<double>();
  return measured;
}

// Also of workers that will not sum with each other: that is not known before there is a plan.
void LeaveRoomForSums(planner::ClusterProfile& cluster) {
  for (int reader = 0; reader < cluster.links.size(); ++reader) {
    bool has_peers = false;
    for (int owner = 0; owner < cluster.links.size(); ++owner) {
      has_peers = has_peers ||
                  (owner != reader && cluster.links.At(owner, reader).peer_bytes_per_second > 0);
    }
    int64_t& bytes = cluster.workers[static_cast<size_t>(reader)].memory_bytes;
    bytes = has_peers ? PlannedBytes(bytes, program::kMostSumBytes) : bytes;
  }
}

}  // namespace

std::string LinkToJson(const MeasuredLink& link) {
  return JsonOf(link).dump();
}

Result<MeasuredLink> LinkFromJson(std::string_view json) {
  const Result<nlohmann::json> read = checkpoint::ParseStrictJson(json, kMaxDepth);
  if (!read.ok()) {
    return InvalidArgumentError("measurement: link: {}", read.status().message());
  }
  try {
    MeasuredLink link = LinkOf(*read);
    HEDDLE_RETURN_IF_ERROR(CheckLink(link));
    return link;
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgumentError("measurement: link: {}", error.what());
  }
}

std::string MeasurementToJson(const WorkerMeasurement& measurement) {
  const nlohmann::json json = {
      {"profile", nlohmann::json::parse(program::ProfileToJson(measurement.profile))},
      {"link", JsonOf(measurement.link)},
      {"profile_measured_at", measurement.profile_measured_at},
      {"speed", measurement.speed},
      {"link_bytes_per_second", measurement.link_bytes_per_second},
      {"threads", measurement.threads},
      {"card", measurement.card},
      {"card_bytes", measurement.card_bytes},
      {"peer_bytes_per_second", measurement.peer_bytes_per_second}};
  return json.dump();
}

Result<WorkerMeasurement> MeasurementFromJson(std::string_view json) {
  WorkerMeasurement measurement;
  const Result<nlohmann::json> read = checkpoint::ParseStrictJson(json, kMaxDepth);
  if (!read.ok()) {
    return InvalidArgumentError("measurement: {}", read.status().message());
  }
  try {
    const nlohmann::json& parsed = *read;
    HEDDLE_ASSIGN_OR_RETURN(measurement.profile,
                            program::ProfileFromJson(parsed.at("profile").dump()));
    measurement.link = LinkOf(parsed.at("link"));
    measurement.profile_measured_at = parsed.at("profile_measured_at").get<double>();
    measurement.speed = parsed.at("speed").get<double>();
    measurement.link_bytes_per_second = parsed.at("link_bytes_per_second").get<double>();
    measurement.threads = parsed.at("threads").get<int64_t>();
    measurement.card = parsed.value("card", "");
    measurement.card_bytes = parsed.value("card_bytes", int64_t{0});
    measurement.peer_bytes_per_second = parsed.value("peer_bytes_per_second", 0.0);
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgumentError("measurement: {}", error.what());
  }
  HEDDLE_RETURN_IF_ERROR(Check(measurement));
  return measurement;
}

Result<program::ProfiledWork> WorkToMeasure(const job::JobConfig& job, const graph::Graph& graph) {
  std::vector<graph::Layout> layouts;
  if (job.plan.has_value()) {
    layouts = job.plan->layouts;
  }
  for (const int size : job.parallel.sizes()) {
    const bool chosen = job.parallel.tensor != job::ParallelSection::kAuto;
    if (size > 1 && (chosen || size <= job.model.num_attention_heads)) {
      const std::vector<int> even(static_cast<size_t>(size), 1);
      HEDDLE_ASSIGN_OR_RETURN(layouts.emplace_back(),
                              graph::TensorParallel(graph, even, job.parallel.divides_sequence));
    }
  }
  return program::WorkOf(graph, layouts);
}

void ScaleProfile(program::WorkerProfile& profile, double slowdown) {
  for (auto& [what, seconds] : profile.seconds) {
    seconds *= slowdown;
  }
  profile.flops_per_second /= slowdown;
  profile.bytes_per_second /= slowdown;
  profile.instruction_seconds *= slowdown;
}

Result<comm::MeasuredLinks> MeasuredLinksFrom(const wire::Links& links, int workers) {
  comm::MeasuredLinks measured;
  if (links.places_size() != 0 && links.places_size() != workers) {
    return InvalidArgumentError("links: {} places for {} workers", links.places_size(), workers);
  }
  measured.place.assign(links.places().begin(), links.places().end());
  for (const wire::Links::Pair& pair : links.pairs()) {
    if (pair.a() < 0 || pair.a() > pair.b() || pair.b() >= workers) {
      return InvalidArgumentError("links: places {} and {} are no pair", pair.a(), pair.b());
    }
    auto& transports = measured.pairs[{pair.a(), pair.b()}];
    for (const wire::Links::Transport& transport : pair.transports()) {
      const comm::Link there{.latency_seconds = transport.latency_seconds(),
                             .bytes_per_second = transport.bytes_per_second(),
                             .transport = transport.name()};
      const comm::Link back{.latency_seconds = transport.back_latency_seconds(),
                            .bytes_per_second = transport.back_bytes_per_second(),
                            .transport = transport.name()};
      for (const comm::Link* link : {&there, &back}) {
        if (!IsLinkSound(link->latency_seconds, link->bytes_per_second)) {
          return InvalidArgumentError("links: {} s and {} bytes a second by {} are no link",
                                      link->latency_seconds, link->bytes_per_second,
                                      transport.name().substr(0, 16));
        }
      }
      transports.push_back({transport.name(), there, back});
    }
  }
  return measured;
}

int64_t PlannedBytes(int64_t cap, int64_t scratch) {
  return cap == 0 ? 0 : std::max<int64_t>(1, cap - scratch);
}

Result<planner::ClusterProfile> ClusterOf(const std::vector<Candidate>& candidates,
                                          const comm::MeasuredLinks& measured,
                                          const comm::TransportPreference& preference) {
  planner::ClusterProfile cluster;
  std::vector<comm::LinkEnd> ends;
  std::vector<CardPart> parts;
  for (const Candidate& candidate : candidates) {
    Result<WorkerMeasurement> measurement = MeasurementFromJson(candidate.profile_json);
    if (!measurement.ok()) {
      return measurement.status().WithContext("worker {}", candidate.name);
    }
    measurement->profile.worker = candidate.name;
    ScaleProfile(measurement->profile, candidate.slowdown);
    parts.push_back(
        {.host = candidate.host, .card = measurement->card, .bytes = measurement->card_bytes});
    cluster.workers.push_back(std::move(measurement->profile));
    comm::Link link = measurement->link.link;
    link.peer_bytes_per_second = measurement->peer_bytes_per_second;
    ends.push_back({.link = link, .host = candidate.host});
  }
  DivideCards(parts, cluster.workers);
  cluster.links = comm::LinksBetween(ends, measured, preference);
  LeaveRoomForSums(cluster);
  return cluster;
}

}  // namespace heddle::elastic
