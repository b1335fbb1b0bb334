/// \file
/// Links by pair: who is measured with whom (LinkPolicy says how much), and what is known of them.
/// Nothing here stops a job: what fails or is late is planned with by its workers' own ends.
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

/// Workers that others reach alike, as text that orders them.
using Place = std::string;
/// In this order.
using PlacePair = std::pair<Place, Place>;

Place PlaceOf(const Worker& worker);

/// Thread: one caller at a time. A copy is an independent machine.
class LinkSurvey {
 public:
  /// Sees to what is to be measured; whether a plan need not wait for it (any longer).
  bool Settled(const Roster& roster, const LinkPolicy& policy, Time now, Outbox& out);

  /// What failed with a worker of its place may go well with this new one.
  void WorkerJoined(const Worker& worker);
  /// Something that decides who is measured with whom has changed: workers, profiles, rates.
  void PlacesChanged() { places_changed_ = true; }
  /// What is known of the links between these workers is measured once more, and counts until then.
  void MeasureAgain(const std::vector<std::string>& names, const Roster& roster);
  void TakeAnswer(const Worker& worker,
                  const wire::LinksMeasured& message,
                  const Roster& roster,
                  const LinkPolicy& policy,
                  Outbox& out);
  /// Says again what a worker that came back may not have heard.
  void Repeat(const Worker& worker,
              const Roster& roster,
              const LinkPolicy& policy,
              Outbox& out) const;
  /// The worker goes: another one of its place may take its part.
  void Forget(const std::string& worker,
              const Roster& roster,
              const LinkPolicy& policy,
              Outbox& out);
  void CheckDeadlines(const Roster& roster, const LinkPolicy& policy, Time now, Outbox& out);
  std::optional<Time> NextDeadline() const;
  /// The job has ended: nothing is waited for.
  void Stop() { measuring_.clear(); }

  /// Of these workers, in this order.
  wire::Links LinksOf(const std::vector<std::string>& names, const Roster& roster) const;
  /// Hosts that take part in a measurement.
  std::set<std::string> BusyHosts(const Roster& roster) const;

  void Restore(const DurableState& durable) { life_ = durable.life + 1; }
  /// What is stored is durable before any request of this life is sent.
  void Store(DurableState& durable);
  Status Check(const Roster& roster) const;

 private:
  /// A measurement under way between two workers, the first of the pair's first place.
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

  int64_t life_ = 0;           ///< Coordinators of this job before this one.
  bool life_durable_ = false;  ///< No request is sent before.
  int64_t next_measurement_ = 1;
  /// By pair of places; empty: it failed, and is not tried again until a worker joins there.
  std::map<PlacePair, std::vector<wire::Links::Transport>> measured_;
  std::set<PlacePair> doubtful_;                      ///< Of these: to be measured again.
  std::map<int64_t, Measurement> measuring_;          ///< By request.
  std::map<Place, std::vector<std::string>> places_;  ///< Candidates, as of the last look.
  std::map<std::string, std::vector<Place>> places_of_host_;
  /// What is still to be measured of them: each place's partners, itself among them; both sides of
  /// a pair have it.
  std::map<Place, std::vector<Place>> unmeasured_;
  bool places_changed_ = true;         ///< The three above are out of date.
  std::set<std::string> freed_hosts_;  ///< Whose `unmeasured_` may begin that could not before.
  std::optional<Time> until_;          ///< A plan waits for links no longer than this.
  bool late_ = false;                  ///< It has; until nothing is left to be measured.
};

}  // namespace heddle::elastic
