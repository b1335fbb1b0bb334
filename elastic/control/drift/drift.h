/// \file
/// Lasting changes of workers' speeds. A worker's slowdown is its measured busy time over the busy
/// time that its profile predicts. The worker drifts if its slowdown, over the one that the plan in
/// force counts on, is beyond the threshold on the same side in most of the newest windows. Other
/// load on a machine slows a worker for some seconds: a change within the square of the threshold
/// must last longer, with all windows beyond the square root of the threshold. A change beyond the
/// fourth power of the threshold, against the last estimate, is noticed in quick windows, which may
/// have a single step: in all of the newest, or in most of them if the worker became quicker, since
/// other load never makes it so. Such an estimate is rough: it is refined once, if most of the
/// next windows are beyond the square root of the threshold. A plan with the measured slowdowns is
/// then looked for. It is put in force if it pays, and if its gain is above the noise of the
/// measurement.
///
/// After either answer there is a pause, which grows while drift goes on. Great changes, and the
/// refinement of their estimates, do not wait for it. They wait for a pause of their own, which
/// only answers to great changes begin and which grows in the same way. So the return of a worker
/// is noticed at once, although its fall was refined just before; and the plan changes ever more
/// rarely for a worker that is slow and fast in turns.
///
/// A change of plan, for whatever reason, counts on what is sure of every member, and not only of
/// one that has drifted: profiles may all be somewhat wrong, and a plan divides the work by the
/// ratios of speeds. A member's speed is sure if it has as many windows as a small change has to
/// last, with a noise within the square root of the threshold. Their median then counts, unless it
/// differs from the slowdown by no more than that noise, which is about two standard errors: among
/// thousands of members that are as profiled few are taken for others. Nothing of this begins a
/// change of plan.
///
/// Windows are kept across generations, because they are compared with the profile, whatever the
/// plan. A worker's slowdown is estimated by the lowest of its three newest windows beyond the
/// threshold. The window in which the change came is none of these, for more are needed to notice
/// it. Other load only slows a worker down, so the lowest value is the closest.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/control/drift/pause.h"
#include "elastic/control/membership/generations.h"
#include "elastic/control/outbox.h"
#include "elastic/control/policy.h"

namespace heddle::elastic {

/// Detects workers whose speed has changed. Thread: one caller at a time. A copy is an independent
/// machine.
class Drift {
 public:
  /// The slowdown that the next plan counts on, as of the last noticed drift or CountOnMeasured; 1:
  /// as profiled.
  double SlowdownOf(const std::string& worker) const;
  /// The slowdown in the newest windows, whether or not a plan counts on it; nullopt: no window was
  /// counted since drift of the worker was last noticed.
  std::optional<double> MeasuredOf(const std::string& worker) const;

  /// Counts the window that a member's heartbeat reports, once.
  void Count(const std::string& worker,
             const wire::Heartbeat& message,
             const Generations& generations,
             const DriftPolicy& policy);
  /// True if members have drifted and a plan is to be looked for; SlowdownOf is then as measured.
  bool Notice(const Generations& generations, const DriftPolicy& policy, Time now, Outbox& out);
  /// True if the last Notice found that this worker has drifted.
  bool WasNoticed(const std::string& worker) const { return noticed_.count(worker) > 0; }
  /// A change of plan is looked for: sets each member's slowdown to what is measured, if that is
  /// sure and differs by more than its noise.
  void CountOnMeasured(const Generations& generations, const DriftPolicy& policy);
  /// True if the newest window of each member is within the threshold of what the plan counts on.
  bool AreSteady(const Generations& generations, const DriftPolicy& policy) const;
  /// Uncertainty of the slowdowns that the last Notice found: half the range of a worker's windows,
  /// without the lowest and the highest, over their median; the largest of all workers.
  double noise() const { return noise_; }
  /// True if the last Notice found a great change, after which only a few steps may have been run.
  bool great() const { return great_; }
  /// Begins the pause: a plan for what the last Notice found is in force, or was found not to pay.
  void Answered(const DriftPolicy& policy, Time now);
  /// A generation comes into force whose plan counts on the current slowdowns.
  void BeginGeneration();
  void Forget(const std::string& worker) { gauges_.erase(worker); }

 private:
  /// Windows of one length, of one worker.
  struct Series {
    int64_t window = 0;  ///< Number of the newest counted window within its generation.
    /// Measured over predicted busy time of the newest windows, across generations.
    std::vector<double> ratios;
  };
  struct Gauge {
    double slowdown = 1;
    double planned_slowdown = 1;  ///< The slowdown that the plan in force counts on.
    bool rough = false;           ///< The slowdown is an estimate from quick windows.
    Series windows;
    Series quick;
  };
  struct Window {
    int64_t number = 0;
    double busy_seconds = 0;
    double predicted_busy_seconds = 0;
  };
  struct Change {
    std::vector<double> newest;  ///< The ratios that tell the noise.
    double slowdown = 1;         ///< The estimate, from those that are beyond the limit.
    bool great = false;          ///< The ratios are those of quick windows.
  };

  static void Count(const Window& window, int kept, const DriftPolicy& policy, Series& series);
  /// True if there are as many windows as a small change has to last.
  static bool HasMost(const Series& windows, const DriftPolicy& policy);
  /// A lasting change to one side; nullopt: there is none. `great_only`: a great one, or the
  /// refinement of its estimate.
  static std::optional<Change> FindChange(const Gauge& gauge,
                                          const DriftPolicy& policy,
                                          bool slower,
                                          bool great_only);

  std::map<std::string, Gauge> gauges_;  ///< By worker; without one it is as profiled.
  std::set<std::string> noticed_;
  double noise_ = 0;
  bool great_ = false;
  DriftPause pause_;
  DriftPause great_pause_;  ///< Of great changes; over whenever pause_ is.
};

}  // namespace heddle::elastic
