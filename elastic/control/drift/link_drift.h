/// \file
/// Lasting changes of links. Drift of links is suspected if steps take longer, or less long, than
/// the first ones of their generation in most of the newest windows, and no worker's speed explains
/// it. The links between the members are then measured again while training goes on. A link drifts
/// if its rate has changed by DriftPolicy::link_factor; less proves nothing, because other traffic
/// lowers the measured rate. After an answer, drift or none, there is a pause that grows.
///
/// A restarted coordinator takes the first links that it measures for those of the plan.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/control/drift/pause.h"
#include "elastic/control/links/link_survey.h"
#include "elastic/control/membership/generations.h"
#include "elastic/control/membership/roster.h"
#include "elastic/control/outbox.h"
#include "elastic/control/policy.h"

namespace heddle::elastic {

/// Detects links whose rate has changed. Thread: one caller at a time. A copy is an independent
/// machine.
class LinkDrift {
 public:
  /// A generation comes into force whose plan counts on `links`: those of the members by rank, then
  /// of other workers.
  void BeginGeneration(std::vector<std::string> members, wire::Links links);
  /// Counts the window that a heartbeat of the first member reports, once. A step takes equally
  /// long for all members.
  void Count(const std::string& worker,
             const wire::Heartbeat& message,
             const Generations& generations,
             const DriftPolicy& policy);
  /// True if a link has drifted and a plan is to be looked for. `measured`: no link is left to be
  /// measured. A generation must be in force.
  bool Notice(bool measured,
              const Generations& generations,
              const Roster& roster,
              const DriftPolicy& policy,
              Time now,
              LinkSurvey& links,
              Outbox& out);

  /// A link between two members that has changed, in the direction that changed most.
  struct Change {
    std::string from;
    std::string to;
    double planned = 0;   ///< Bytes per second of the fastest transport that the plan counts on.
    double measured = 0;  ///< Bytes per second of the fastest transport now.
  };
  /// The largest change that was noticed; nullopt if there is none since the last Drop.
  const std::optional<Change>& noticed() const { return noticed_; }
  void Drop() { noticed_.reset(); }
  /// Begins the pause: a plan for the links is in force, or was found not to pay.
  void Answered(const DriftPolicy& policy, Time now);

 private:
  bool IsSuspicious(const DriftPolicy& policy) const;
  bool FindChange(const wire::Links& now, double factor, Outbox& out);

  std::vector<std::string> members_;  ///< Empty: the links that the plan counts on are not known.
  wire::Links planned_;
  int64_t window_ = 0;         ///< The last window that was counted.
  std::vector<double> usual_;  ///< Seconds of a step in the generation's first windows.
  std::deque<double> last_;    ///< Seconds of a step in the newest windows after those.
  bool measuring_ = false;     ///< The links are being measured because of a suspicion.
  std::optional<Change> noticed_;
  DriftPause pause_;
};

}  // namespace heddle::elastic
