/// \file
/// The coordinator's metrics, kept from the events of the run.
#pragma once

#include <string_view>

#include "elastic/control/log_event.h"
#include "metrics/registry.h"

namespace heddle::elastic {

/// Counters and histograms are there from its making on, at 0, with each value of a label that is
/// known: what rises from nothing is no increase to Prometheus. Thread: any.
class ServiceMetrics {
 public:
  explicit ServiceMetrics(metrics::Registry& registry);
  void Note(const LogEvent& event);
  void SetWorkers(int count);
  /// Whether there is a job that has not ended.
  void SetRunning(bool running);
  /// In seconds since the epoch.
  void SetCertificateEnd(double ends);
  /// A worker was given a certificate; `by`: "token" or "renewal".
  void CountIssued(std::string_view by);
  /// A call was refused; `reason`: one of few.
  void CountRefusal(std::string_view reason);

 private:
  void NoteStep(const LogEvent& event);
  void NoteRecovery(const LogEvent& event);
  void NoteJob();
  void NoteOutcome(const LogEvent& event);

  metrics::Registry& registry_;
};

}  // namespace heddle::elastic
