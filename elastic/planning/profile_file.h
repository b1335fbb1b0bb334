/// \file
/// What a plan was made from: the workers' measurements and the links between them. `heddle plan
/// --save-profile` and every run write it, and `heddle plan --profile` makes the same plan again,
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

/// A worker as it was measured, and where.
struct MeasuredWorker {
  std::string worker;
  std::string host;
  double slowdown = 1;  ///< Candidate::slowdown.
  WorkerMeasurement measurement = {};
};

struct ProfileFile {
  std::vector<MeasuredWorker> workers = {};
  wire::Links links = {};  ///< Between the workers, in their order; empty: nothing was measured.
};

std::string ProfileFileToJson(const ProfileFile& file);

/// Errors: kInvalidArgument naming the worker or the key.
Result<ProfileFile> ProfileFileFromJson(std::string_view json);

/// The text of a file of what the planner was asked with. Errors: kInvalidArgument naming the
/// worker whose measurement is none.
Result<std::string> ProfileFileJsonOf(const PlanRequest& request);

/// What the planner is asked with: the job's workers, sorted by name, as the file has them; memory
/// caps are the job's. Errors: kInvalidArgument saying which worker is not there, or was measured
/// as something else than the job says: another speed, link, number of threads, or model.
Result<PlanRequest> PlanRequestOf(const ProfileFile& file,
                                  const job::JobConfig& job,
                                  const graph::Graph& graph);

}  // namespace heddle::elastic
