/// \file
/// The answer to Prometheus's HTTP service discovery: where this job's metrics are now. Prometheus
/// asks again every refresh_interval, so that it follows workers that join and leave without a
/// change of its configuration. Source: https://prometheus.io/docs/prometheus/latest/http_sd/.
#pragma once

#include <span>
#include <string>

#include "metrics/registry.h"

namespace heddle::metrics {

/// A process whose metrics Prometheus reads.
struct ScrapeTarget {
  std::string address;  ///< "HOST:PORT" at which Prometheus reaches it.
  Labels labels = {};   ///< Labels of all its samples, for example {"worker": "w0"}.
};

/// Formats the targets as a JSON list with one group each, in the given order. Content type:
/// application/json.
std::string ServiceDiscoveryJson(std::span<const ScrapeTarget> targets);

}  // namespace heddle::metrics
