// A lasting change of speed. A worker drifts when its measured busy time, over what its profile and
// the current plan's correction predict, was beyond the threshold to one side in most of the last
// windows. A plan with the measured speeds is then looked for; whether it is put in force is
// economics (WorthChanging), and after either answer there is a pause that grows while drift goes
// on.
#include <algorithm>

#include "elastic/control/coordinator_state.h"

namespace heddle::elastic {
namespace {

constexpr int kCalm =
    10;  // Cooldowns without a change after which the pause is the first one again.
constexpr Duration kLongestCooldown = std::chrono::minutes(5);

}  // namespace

void Coordinator::State::CountWindow(Worker& worker, const wire::Heartbeat& message) {
  if (!held || message.generation() != held->number || message.window() <= worker.window ||
      transition) {
    return;
  }
  worker.window = message.window();
  if (message.window() <= policy().drift.windows_excluded ||
      message.predicted_busy_seconds() <= 0 || message.busy_seconds() <= 0) {
    return;
  }
  worker.ratios.push_back(message.busy_seconds() / message.predicted_busy_seconds());
  while (static_cast<int>(worker.ratios.size()) > policy().drift.windows) {
    worker.ratios.pop_front();
  }
}

bool Coordinator::State::NoticeDrift(Time now) {
  const DriftPolicy& drift = policy().drift;
  if (!drift.enabled || (drift_not_before && now < *drift_not_before)) {
    return false;
  }
  bool noticed = false;
  for (auto& [name, worker] : workers) {
    if (!IsMember(name) || static_cast<int>(worker.ratios.size()) < drift.windows_over) {
      continue;
    }
    int slower = 0;
    int faster = 0;
    for (const double ratio : worker.ratios) {
      slower += ratio > drift.threshold * worker.planned_slowdown ? 1 : 0;
      faster += ratio < worker.planned_slowdown / drift.threshold ? 1 : 0;
    }
    if (slower >= drift.windows_over || faster >= drift.windows_over) {
      std::vector<double> sorted(worker.ratios.begin(), worker.ratios.end());
      std::sort(sorted.begin(), sorted.end());
      worker.slowdown = sorted[sorted.size() / 2];
      worker.ratios.clear();
      Log("drift", {{"worker", name}, {"slowdown", worker.slowdown}});
      noticed = true;
    }
  }
  return noticed;
}

void Coordinator::State::DriftChanged(Time now) {
  const DriftPolicy& drift = policy().drift;
  const bool calm = !last_drift_change || now - *last_drift_change > kCalm * drift_cooldown;
  drift_cooldown = calm ? drift.cooldown : std::min(2 * drift_cooldown, kLongestCooldown);
  last_drift_change = now;
  drift_not_before = now + drift_cooldown;
}

}  // namespace heddle::elastic
