/// \file
/// The measurements that a worker makes before it gets a plan: of its device, and of its own end of
/// its links.
#pragma once

#include <cstdint>
#include <string>

#include "base/progress.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "elastic/planning/measurement.h"
#include "elastic/worker/measure/kept_files.h"
#include "engine/job/job.h"
#include "engine/program/profiled_work.h"
#include "engine/runtime/device/device.h"

namespace heddle::elastic {

/// The worker that is measured, and the conditions.
struct MeasuredAs {
  std::string worker;
  const program::ProfiledWork* work = nullptr;
  job::Emulation emulation;
  runtime::Device* device = nullptr;  ///< That it computes on.
  int64_t threads = 1;
};

/// Measures a worker, or takes the measurements that its machine keeps in `kept`. The profile of an
/// emulated worker is the one that emulated workers of this machine share, scaled by its speed.
/// `endpoint`: the options of the worker's endpoint, with its identity. Takes seconds if nothing is
/// kept, and notes its progress in `progress`. Errors: kInternal (a kernel fails), those of
/// comm::Endpoint.
Result<WorkerMeasurement> MeasureWorker(const MeasuredAs& as,
                                        KeptFiles& kept,
                                        comm::EndpointOptions endpoint,
                                        Progress& progress);

}  // namespace heddle::elastic
