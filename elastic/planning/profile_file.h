/// \file
/// The file of `heddle plan --save-profile`: what was measured of a job's workers, from which
/// `heddle plan --profile` makes the same plan again, byte for byte, on any machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "elastic/planning/measurement.h"
#include "engine/graph/graph.h"
#include "engine/job/job.h"

namespace heddle::elastic {

struct MeasuredWorker {
  std::string worker;
  double measured_at = 0;  ///< Seconds of the wall clock since 1970.
  /// What it was emulated as, and the threads that it computed with.
  double speed = 1;
  double link_bytes_per_second = 0;
  int64_t threads = 1;
  WorkerMeasurement measurement = {};
};

std::string ProfileFileToJson(const std::vector<MeasuredWorker>& workers);

/// Errors: kInvalidArgument naming the worker or the key.
Result<std::vector<MeasuredWorker>> ProfileFileFromJson(std::string_view json);

/// The job's workers in its order, as the file has them; memory caps are the job's. Errors:
/// kInvalidArgument saying which worker is not there, or was measured as something else than the
/// job says: another speed, link, number of threads, or model.
Result<std::vector<MeasuredWorker>> WorkersOfJob(const std::vector<MeasuredWorker>& file,
                                                 const job::JobConfig& job,
                                                 const graph::Graph& graph);

}  // namespace heddle::elastic
