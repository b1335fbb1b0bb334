/// \file
/// The coordinator's metrics, updated from the events of the run.
#pragma once

#include <string_view>

#include "elastic/control/log_event.h"
#include "metrics/registry.h"

namespace heddle::elastic {

/// The coordinator's metrics. Counters and histograms are registered at 0 by the constructor, with
/// every known value of their labels, because Prometheus does not see a series that appears above 0
/// as an increase. Thread: any.
class ServiceMetrics {
 public:
  explicit ServiceMetrics(metrics::Registry& registry);
  /// Updates the metrics from an event of the run's log.
  void Note(const LogEvent& event);
  /// Sets the number of workers.
  void SetWorkers(int count);
  /// Sets whether there is a job that has not ended.
  void SetRunning(bool running);
  /// Sets when the coordinator's certificate ends, in seconds since the epoch.
  void SetCertificateEnd(double ends);
  /// Counts an issued certificate; `by`: "token" or "renewal".
  void CountIssued(std::string_view by);
  /// Counts a refused call; `reason`: RefusalReasonName.
  void CountRefusal(std::string_view reason);

 private:
  void NoteStep(const LogEvent& event);
  void NoteRecovery(const LogEvent& event);
  void NoteJob();
  void NoteOutcome(const LogEvent& event);

  metrics::Registry& registry_;
};

}  // namespace heddle::elastic
