/// \file
/// Lasting changes of links. Drift of links is suspected if steps take longer, or less long, than
/// the first ones of their generation in most of the newest windows, and no member's compute
/// explains it. A step grows at most by the factor by which the compute of a member grows, unless
/// links are slower. So each member's windows are compared with its own first ones, and links are
/// suspected only if for every member the step has grown beyond the threshold over its own compute.
/// One member whose compute explains the step is enough against a suspicion, and a member whose
/// speed merely varies hides none. Nothing depends on profiles, or on what Drift has noticed.
///
/// After a suspicion the links between the members are measured again while training goes on. A
/// link drifts if its rate has changed by DriftPolicy::link_factor; less proves nothing, because
/// other traffic lowers the measured rate. After an answer, drift or none, there is a pause that
/// grows.
///
/// A plan for another reason also takes the newest rates. Then, too, a link that has changed is
/// noticed. The plan in force counts on the rates of the moment when it was asked for: those that
/// became known while it was prepared are compared once it is in force.
///
/// A restarted coordinator takes the first links that it measures for those of the plan.
#pragma once

#include <cstdint>
#include <map>
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

/// The measured links that a plan was found with.
struct PlannedLinks {
  std::vector<std::string> workers;  ///< The plan's candidates; empty: not known.
  wire::Links links;                 ///< In the order of `workers`.
};

/// Detects links whose rate has changed. Thread: one caller at a time. A copy is an independent
/// machine.
class LinkDrift {
 public:
  /// What the functions below look at.
  struct View {
    bool measured = false;           ///< No link is left to be measured.
    const Generations& generations;  ///< A generation must be in force.
    const Roster& roster;
    const DriftPolicy& policy;
    Time now;
  };

  /// A generation comes into force whose plan counts on `planned`. A suspicion whose links are not
  /// measured yet goes on.
  void BeginGeneration(PlannedLinks planned);
  /// Counts the window that a member's heartbeat reports, once.
  void Count(const std::string& worker,
             const wire::Heartbeat& message,
             const Generations& generations,
             const DriftPolicy& policy);
  /// True if a link has drifted and a plan is to be looked for.
  bool Notice(const View& view, LinkSurvey& links, Outbox& out);
  /// Notices what a change of plan that begins has to know: a link whose known rate has changed. If
  /// none has, and the newest windows already speak for a suspicion, the links are measured again,
  /// because the first windows of the next generation could not tell.
  void NoticeForChange(const View& view, LinkSurvey& links, Outbox& out);

  /// A link between two members that has changed, in the direction that changed most.
  struct Change {
    std::string from;
    std::string to;
    double planned = 0;   ///< Bytes per second of the fastest transport that the plan counts on.
    double measured = 0;  ///< Bytes per second of the fastest transport now.
    friend bool operator==(const Change&, const Change&) = default;
  };
  /// The largest change that was noticed; nullopt if there is none since the last Drop.
  const std::optional<Change>& noticed() const { return noticed_; }
  void Drop() { noticed_.reset(); }
  /// Begins the pause: a plan for the links is in force, or was found not to pay.
  void Answered(const DriftPolicy& policy, Time now);

 private:
  /// A window of one member, in seconds of one step.
  struct Window {
    double step = 0;  ///< From the begin of the step to the begin of the next, for all members.
    double busy = 0;  ///< The member's compute.
  };
  struct Series {
    int64_t number = 0;          ///< Number of the newest counted window.
    std::vector<Window> first;   ///< The generation's first windows, or the first after an answer.
    std::vector<Window> newest;  ///< The newest windows after those, oldest first.
  };

  /// The median of the generation's first windows.
  static Window UsualOf(const Series& series);
  /// The factor by which the step takes longer (`slower`), or less long, than usual, over that by
  /// which the member's own compute does.
  static double UnexplainedOf(const Window& window, const Window& usual, bool slower);
  /// True if for every member `least` of its newest `count` windows are beyond the threshold.
  bool IsSuspicious(int count, int least, double threshold) const;
  /// True if all members are there and it is known which links the plan counts on.
  bool CanLook(const View& view, const LinkSurvey& links);
  void Suspect(const View& view, LinkSurvey& links, Outbox& out);
  bool FindChange(const View& view, const LinkSurvey& links, Outbox& out);

  PlannedLinks planned_;
  std::map<std::string, Series> series_;  ///< By member, if it has reported a window.
  bool suspected_ = false;                ///< The links are being measured because of a suspicion.
  bool begins_ = false;  ///< What is known was not compared yet with what the plan counts on.
  std::optional<Change> noticed_;
  std::optional<Change> logged_;  ///< The last change that was logged in this generation.
  DriftPause pause_;
};

}  // namespace heddle::elastic
