/// \file
/// What a worker measures of itself before it gets a plan: its device, its own end of its links.
#pragma once

#include <cstdint>
#include <string>

#include "base/progress.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "elastic/planning/measurement.h"
#include "elastic/worker/measure/kept_files.h"
#include "engine/graph/graph.h"
#include "engine/job/job.h"

namespace heddle::elastic {

/// Who is measured, and under which conditions.
struct MeasuredAs {
  std::string worker;
  const graph::Graph* graph = nullptr;
  job::Emulation emulation;
  int64_t threads = 1;
};

/// Measures a worker, or takes what its machine keeps in `kept`. An emulated worker's profile is
/// what emulated workers of this machine measure, scaled by its speed. `endpoint`: what the
/// worker's own was made with, and its identity. Takes seconds where nothing is kept, and
/// `progress` hears of them. Errors: kInternal when a kernel fails; those of comm::Endpoint.
Result<WorkerMeasurement> MeasureWorker(const MeasuredAs& as,
                                        KeptFiles& kept,
                                        comm::EndpointOptions endpoint,
                                        Progress& progress);

}  // namespace heddle::elastic
