/// \file
/// The survey of links by pair of places: which workers measure when (LinkPolicy says how much),
/// and the results. A measurement never stops a job: for a pair whose measurement fails or is late,
/// plans count on the figures in the two workers' own profiles.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/control/membership/roster.h"
#include "elastic/control/outbox.h"
#include "elastic/control/policy.h"

namespace heddle::elastic {

/// The key of a place (LinkPolicy), by which places are also ordered.
using Place = std::string;
/// Two places, the lesser first; both may be the same.
using PlacePair = std::pair<Place, Place>;

Place PlaceOf(const Worker& worker);

/// Measures links and keeps the figures. Thread: one caller at a time. A copy is an independent
/// machine.
class LinkSurvey {
 public:
  /// Starts the measurements that can run now. True if a plan need not wait for any measurement, or
  /// no longer.
  bool Settled(const Roster& roster, const LinkPolicy& policy, Time now, Outbox& out);

  /// Forgets failed measurements of the new worker's place: they may succeed with it.
  void WorkerJoined(const Worker& worker);
  /// Records that workers, profiles or emulated rates have changed, which decide what is measured.
  void PlacesChanged() { places_changed_ = true; }
  /// Measures the links between these workers once more; the known figures count until then.
  void MeasureAgain(const std::vector<std::string>& names, const Roster& roster);
  /// Takes a worker's reply; the second one of a measurement ends it.
  void TakeAnswer(const Worker& worker,
                  const wire::LinksMeasured& message,
                  const Roster& roster,
                  const LinkPolicy& policy,
                  Outbox& out);
  /// Resends the request to a worker that came back and may not have received it.
  void Resend(const Worker& worker,
              const Roster& roster,
              const LinkPolicy& policy,
              Outbox& out) const;
  /// Ends the measurements of a worker that is about to be removed; another one of its place may
  /// repeat them.
  void Forget(const std::string& worker,
              const Roster& roster,
              const LinkPolicy& policy,
              Outbox& out);
  /// Ends measurements that are overdue, and the wait of a plan for all of them.
  void CheckDeadlines(const Roster& roster, const LinkPolicy& policy, Time now, Outbox& out);
  std::optional<Time> NextDeadline() const;
  /// Drops all measurements in progress, because the job has ended.
  void Stop() { measuring_.clear(); }

  /// The measured links between these workers, in this order.
  wire::Links LinksOf(const std::vector<std::string>& names, const Roster& roster) const;
  /// Hosts that take part in a measurement.
  std::set<std::string> BusyHosts(const Roster& roster) const;

  void Restore(const DurableState& durable) { restarts_ = durable.restarts + 1; }
  /// Stores the number of this life, which is durable before any request of this life is sent.
  void Store(DurableState& durable);
  Status Check(const Roster& roster) const;

 private:
  /// A measurement in progress between two workers, the first one of the pair's first place.
  struct Measurement {
    PlacePair places;
    std::array<std::string, 2> workers;
    std::array<std::optional<wire::LinksMeasured>, 2> answers;
    Time deadline;
  };

  static std::string ReasonOf(const Measurement& measurement);
  void ForgetOldPlaces(const Roster& roster);
  void FindUnmeasured(const Roster& roster, int most_partners);
  void StartMeasuring(const Roster& roster, const LinkPolicy& policy, Time now, Outbox& out);
  void Start(Measurement measurement, const Roster& roster, const LinkPolicy& policy, Outbox& out);
  const Worker* MeasurerOf(const Place& place, const Worker* other, const Roster& roster) const;
  wire::MeasureLinks MakeRequest(int64_t request,
                                 int rank,
                                 const Roster& roster,
                                 const LinkPolicy& policy) const;
  void EndMeasurement(int64_t request,
                      const std::string& failure,
                      const Roster& roster,
                      const LinkPolicy& policy,
                      Outbox& out);

  int64_t restarts_ = 0;           ///< Coordinators of this job before this one.
  bool restarts_durable_ = false;  ///< restarts_ is stored; no request is sent before.
  int64_t next_measurement_ = 1;
  /// By pair of places: the transports that join them. Empty: the measurement failed, and is not
  /// repeated until a worker joins there.
  std::map<PlacePair, std::vector<wire::Links::Transport>> measured_;
  std::set<PlacePair> doubtful_;              ///< Pairs of measured_ that are to be measured again.
  std::map<int64_t, Measurement> measuring_;  ///< Measurements in progress, by request.
  /// By place: the names of its candidates, as of the last FindUnmeasured.
  std::map<Place, std::vector<std::string>> places_;
  std::map<std::string, std::vector<Place>> places_of_host_;
  /// By place: the partners that it is still to be measured with, which may include itself. A pair
  /// is under both of its places.
  std::map<Place, std::vector<Place>> unmeasured_;
  bool places_changed_ = true;         ///< The three above are out of date.
  std::set<std::string> freed_hosts_;  ///< Hosts whose unmeasured_ pairs may be able to start now.
  std::optional<Time> until_;          ///< A plan waits for measurements no longer than this.
  bool late_ = false;                  ///< until_ has passed; false once all are measured.
};

}  // namespace heddle::elastic
