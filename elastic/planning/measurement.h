/// \file
/// What a worker measures of itself when it joins, as it travels in elastic::wire::Profiled, and
/// the cluster that the planner sees made of such measurements.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/cost/cost.h"
#include "comm/cost/measured_links.h"
#include "elastic/control/planning.h"
#include "engine/program/profile.h"
#include "planner/predictor/cluster.h"

namespace heddle::elastic {

/// A link as the rounds of one measurement found it.
struct MeasuredLink {
  comm::Link link = {};  ///< Medians of the rounds.
  /// Half of what lies between the rounds' quartiles.
  double latency_spread_seconds = 0;
  double bytes_per_second_spread = 0;
  double measured_at = 0;  ///< Seconds of the wall clock since 1970; a kept link may be a day old.
};

std::string LinkToJson(const MeasuredLink& link);
/// Errors: kInvalidArgument naming the key.
Result<MeasuredLink> LinkFromJson(std::string_view json);

struct WorkerMeasurement {
  program::WorkerProfile profile;
  MeasuredLink link;  ///< The worker's own end, measured through its own endpoint.
  /// Seconds of the wall clock since 1970; a kept profile may be a day old.
  double profile_measured_at = 0;
  /// What the worker was emulated as, and the threads that it computed with.
  double speed = 1;
  double link_bytes_per_second = 0;
  int64_t threads = 1;
};

std::string MeasurementToJson(const WorkerMeasurement& measurement);
/// Errors: kInvalidArgument naming the key.
Result<WorkerMeasurement> MeasurementFromJson(std::string_view json);

/// Scales the compute seconds of a profile: the worker has been measured to take `slowdown` times
/// as long.
void ScaleProfile(program::WorkerProfile& profile, double slowdown);

/// What the coordinator tells of measured links, about `workers` workers. Errors: kInvalidArgument
/// (places or figures that are none).
Result<comm::MeasuredLinks> MeasuredLinksFrom(const wire::Links& links, int workers);

/// The candidates' cluster, in their order. The link of a pair is what was measured of the
/// transport that it would choose; where nothing was, the slower of both ends. Errors:
/// kInvalidArgument naming the worker.
Result<planner::ClusterProfile> ClusterOf(const std::vector<Candidate>& candidates,
                                          const comm::MeasuredLinks& measured = {},
                                          const comm::TransportPreference& preference = {});

}  // namespace heddle::elastic
