/// \file
/// The coordinator's metrics, kept from the events of the run.
#pragma once

#include "elastic/control/log_event.h"
#include "metrics/registry.h"

namespace heddle::elastic {

/// Thread: any.
class ServiceMetrics {
 public:
  explicit ServiceMetrics(metrics::Registry& registry);
  void Note(const LogEvent& event);
  void SetWorkers(int count);

 private:
  metrics::Registry& registry_;
};

}  // namespace heddle::elastic
