/// \file
/// What the kernel says of this process, under the names that Prometheus' client libraries share.
#pragma once

#include <vector>

#include "metrics/registry.h"

namespace heddle::metrics {

/// Processor time, memory, descriptors and start of this process, now; a figure that cannot be read
/// is not there. Source:
/// https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics. Thread: any.
std::vector<Registry::Family> ProcessFigures();

}  // namespace heddle::metrics
