/// \file
/// A lasting change of links. Steps that take longer, or less, than the first ones of their
/// generation did, in most of the last windows, are a suspicion where no worker's speed explains
/// them. What the links between the members carry is then measured again, beside the training, and
/// a link drifts whose rate is another one by a factor: measured beside other traffic it is less
/// by itself. After an answer, drift or none, there is a pause that grows.
///
/// A restarted coordinator takes the links as it first measures them for those of the plan.
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

/// Thread: one caller at a time. A copy is an independent machine.
class LinkDrift {
 public:
  /// The plan counts on these links, between its members by rank and others after them.
  void BeginGeneration(std::vector<std::string> members, wire::Links links);
  /// A step takes all members equally long: the windows of the first one count.
  void Count(const std::string& worker,
             const wire::Heartbeat& message,
             const Generations& generations,
             const DriftPolicy& policy);
  /// Whether a plan is to be looked for. `measured`: nothing is left to be measured. A generation
  /// is in force.
  bool Notice(bool measured,
              const Generations& generations,
              const Roster& roster,
              const DriftPolicy& policy,
              Time now,
              LinkSurvey& links,
              Outbox& out);

  /// A link between two members, in the direction that changed most.
  struct Change {
    std::string from;
    std::string to;
    double planned = 0;  ///< Bytes a second, of the fastest transport.
    double measured = 0;
  };
  /// The largest of those that were just noticed; none: none was.
  const std::optional<Change>& noticed() const { return noticed_; }
  void Drop() { noticed_.reset(); }
  /// A plan for them is in force, or was found not to pay.
  void Answered(const DriftPolicy& policy, Time now);

 private:
  bool IsSuspicious(const DriftPolicy& policy) const;
  bool FindChange(const wire::Links& now, double factor, Outbox& out);

  std::vector<std::string> members_;  ///< Empty: what the plan counts on is not known.
  wire::Links planned_;
  int64_t window_ = 0;         ///< The last one that was counted.
  std::vector<double> usual_;  ///< Seconds of a step in the generation's first windows,
  std::deque<double> last_;    ///< and in the last ones after them.
  bool measuring_ = false;     ///< For a suspicion.
  std::optional<Change> noticed_;
  DriftPause pause_;
};

}  // namespace heddle::elastic
