/// \file
/// What a worker measures of itself when it joins (sent as JSON in elastic::wire::Profiled), and
/// the planner's view of a cluster, made of these measurements.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/cost/cost.h"
#include "comm/cost/measured_links.h"
#include "elastic/control/planning.h"
#include "engine/job/job.h"
#include "engine/program/profile.h"
#include "engine/program/profiled_work.h"
#include "planner/predictor/cluster.h"

namespace heddle::elastic {

/// A link, measured in several rounds.
struct MeasuredLink {
  comm::Link link = {};  ///< Medians of the rounds.
  /// Half the interquartile range of the rounds' latencies, in seconds.
  double latency_spread_seconds = 0;
  /// Half the interquartile range of the rounds' rates, in bytes per second.
  double bytes_per_second_spread = 0;
  double measured_at = 0;  ///< Seconds of the wall clock since 1970; a kept link may be a day old.
};

std::string LinkToJson(const MeasuredLink& link);
/// Reads what LinkToJson wrote. Errors: kInvalidArgument naming the malformed key.
Result<MeasuredLink> LinkFromJson(std::string_view json);

/// What a worker measures of itself.
struct WorkerMeasurement {
  program::WorkerProfile profile;
  MeasuredLink link;  ///< The worker's end of its links, measured between two endpoints of its own.
  /// Seconds of the wall clock since 1970; a kept profile may be a day old.
  double profile_measured_at = 0;
  double speed = 1;                  ///< The emulated speed that was in effect.
  double link_bytes_per_second = 0;  ///< The emulated rate of links that was in effect; 0: none.
  int64_t threads = 1;               ///< Threads that the worker computed with.
  std::string card = {};   ///< Device::card(): workers of one host with the same one share it.
  int64_t card_bytes = 0;  ///< What the worker may use of the card's memory if it is alone on it.
  /// At which its device reads the memory of the host's other devices; 0: it does not, or unknown.
  double peer_bytes_per_second = 0;
};

std::string MeasurementToJson(const WorkerMeasurement& measurement);
/// Reads what MeasurementToJson wrote. Errors: kInvalidArgument naming the malformed key.
Result<WorkerMeasurement> MeasurementFromJson(std::string_view json);

/// What each worker of a job measures: the nodes of the job's graph, and those of the groups that
/// its plan file has, or its stages are if workers are alike. Errors: those of program::WorkOf and
/// graph::TensorParallel.
Result<program::ProfiledWork> WorkToMeasure(const job::JobConfig& job, const graph::Graph& graph);

/// Multiplies the compute seconds of a profile by `slowdown`, and divides its rates by it.
void ScaleProfile(program::WorkerProfile& profile, double slowdown);

/// Converts the measured links of `workers` workers. Errors: kInvalidArgument (places or figures
/// are malformed).
Result<comm::MeasuredLinks> MeasuredLinksFrom(const wire::Links& links, int workers);

/// The memory that plans count on of a worker that may use `cap` bytes (0: all, and it is unknown),
/// of which a card's kernels take `scratch` beside values.
int64_t PlannedBytes(int64_t cap, int64_t scratch);

/// The cluster of the candidates, in their order. Those on one card divide its memory
/// (shared_cards.h), and those of one host whose devices read each other's memory need some of it for
/// sums (program::kMostSumBytes). The link of a pair has the measured figures of
/// the transport that the pair would choose; if it was not measured, those of the slower of the two
/// workers' own links. Errors: kInvalidArgument naming the worker whose measurement is malformed.
Result<planner::ClusterProfile> ClusterOf(const std::vector<Candidate>& candidates,
                                          const comm::MeasuredLinks& measured = {},
                                          const comm::TransportPreference& preference = {});

}  // namespace heddle::elastic
