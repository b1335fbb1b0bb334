/// \file
/// A lasting change of speed. A worker drifts when its measured busy time, over what its profile
/// and the current plan's correction predict, was beyond the threshold to one side in most of the
/// last windows. What else runs on a machine slows a worker for some seconds: a change that is not
/// beyond the threshold's square has to last longer, and none of its windows may be within the
/// threshold's square root. A change beyond the threshold's fourth power is too great to be
/// noise, and is noticed in quick windows, which have a step at least; one window less shows that a
/// worker became quicker, for no other work does that. A plan with the measured speeds is then
/// looked for; whether it is put in force is economics: its gain has to be above the noise of the
/// measurement, too. After either answer there is a pause that grows while drift goes on.
///
/// Windows outlive generations: busy time is compared with the worker's profile, whatever the plan.
/// How slow a worker is said to be is the lowest of its three newest windows beyond the threshold.
/// The window in which the change came is none of them, for more are needed to notice it. What else
/// runs on a machine holds a worker up, and nothing speeds it up: the lowest is the nearest one.
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

/// Thread: one caller at a time. A copy is an independent machine.
class Drift {
 public:
  /// Measured against the worker's profile; 1: as profiled.
  double SlowdownOf(const std::string& worker) const;
  /// As the newest windows say, whether or not a plan counts on it; none: no window was counted
  /// since a change was noticed last.
  std::optional<double> MeasuredOf(const std::string& worker) const;

  void Count(const std::string& worker,
             const wire::Heartbeat& message,
             const Generations& generations,
             const DriftPolicy& policy);
  /// Whether a plan is to be looked for; slowdowns are as measured then.
  bool Notice(const Generations& generations, const DriftPolicy& policy, Time now, Outbox& out);
  /// Whether it was one of those that drifted when that was noticed last.
  bool WasNoticed(const std::string& worker) const { return noticed_.count(worker) > 0; }
  /// Whether the newest window of each member is as the plan counts on.
  bool AreSteady(const Generations& generations, const DriftPolicy& policy) const;
  /// How uncertain the slowdowns are that were noticed last: half the range of a worker's windows
  /// without its lowest and highest one, over their median; of the least certain worker.
  double noise() const { return noise_; }
  /// A plan for drift is in force, or was found not to pay.
  void Answered(const DriftPolicy& policy, Time now) { pause_.Begin(policy, now); }
  /// Its plan counts on the slowdowns of now.
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
    double planned_slowdown = 1;  ///< What the current plan counts on.
    Series windows;
    Series quick;
  };
  struct Window {
    int64_t number = 0;
    double busy_seconds = 0;
    double predicted_busy_seconds = 0;
  };
  /// The newest ratios when they are a lasting change, and those among them that are beyond the
  /// limit.
  struct Change {
    std::vector<double> newest;
    std::vector<double> beyond;
  };

  static void Count(const Window& window, int kept, const DriftPolicy& policy, Series& series);
  /// A lasting change to one side; nullopt: none. `quick_over`: quick windows that a great change
  /// takes. `excess_of`: how many times beyond what the plan counts on a ratio is, to that side.
  template <typename Excess>
  static std::optional<Change> FindChange(const Gauge& gauge,
                                          const DriftPolicy& policy,
                                          int quick_over,
                                          Excess excess_of);

  std::map<std::string, Gauge> gauges_;  ///< By worker; none: as profiled.
  std::set<std::string> noticed_;
  double noise_ = 0;
  DriftPause pause_;
};

}  // namespace heddle::elastic
