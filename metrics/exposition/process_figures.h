/// \file
/// The kernel's figures of this process, under the names that Prometheus's client libraries share.
#pragma once

#include <vector>

#include "metrics/registry.h"

namespace heddle::metrics {

/// Reads the processor time, memory, descriptors and start time of this process. A figure that
/// cannot be read is left out. Source:
/// https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics. Thread: any.
std::vector<Registry::Family> ProcessFigures();

}  // namespace heddle::metrics
