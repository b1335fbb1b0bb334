/// \file
/// A profile file: the workers' measurements and the links that a plan was made from. `heddle plan
/// --save-profile` and every run write one, and `heddle plan --profile` makes the same plan again,
/// byte for byte, on any machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "elastic/control/planning.h"
#include "elastic/planning/measurement.h"
#include "engine/graph/graph.h"
#include "engine/job/job.h"

namespace heddle::elastic {

/// A worker's measurement, and the host of the worker.
struct MeasuredWorker {
  std::string worker;
  std::string host;
  double slowdown = 1;  ///< Candidate::slowdown.
  WorkerMeasurement measurement = {};
};

struct ProfileFile {
  std::vector<MeasuredWorker> workers = {};
  wire::Links links = {};  ///< Measured links of the workers, in their order; empty: none was.
};

std::string ProfileFileToJson(const ProfileFile& file);

/// Reads what ProfileFileToJson wrote. Errors: kInvalidArgument naming the worker or the key.
Result<ProfileFile> ProfileFileFromJson(std::string_view json);

/// The profile file of a plan request, as JSON. Errors: kInvalidArgument naming the worker whose
/// measurement is malformed.
Result<std::string> ProfileFileJsonOf(const PlanRequest& request);

/// The plan request for the job's workers, sorted by name, with the file's measurements and the
/// job's memory limits. Errors: kInvalidArgument naming a worker that the file does not have, or
/// that was measured with another speed, link rate, number of threads, model or division of layers
/// than the job's.
Result<PlanRequest> PlanRequestOf(const ProfileFile& file,
                                  const job::JobConfig& job,
                                  const graph::Graph& graph);

}  // namespace heddle::elastic
