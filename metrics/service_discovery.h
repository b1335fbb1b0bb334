/// \file
/// The answer to Prometheus' http_sd: where this job's metrics are now. Prometheus asks again every
/// refresh_interval, so workers that join and leave are followed without a change of its
/// configuration. Source: https://prometheus.io/docs/prometheus/latest/http_sd/.
#pragma once

#include <span>
#include <string>

#include "metrics/registry.h"

namespace heddle::metrics {

struct ScrapeTarget {
  std::string address;  ///< "HOST:PORT" as Prometheus reaches it.
  Labels labels = {};   ///< Put on every sample of the target: for example {"worker": "w0"}.
};

/// A JSON list with one group a target, in the given order. Content type: application/json.
std::string ServiceDiscoveryJson(std::span<const ScrapeTarget> targets);

}  // namespace heddle::metrics
