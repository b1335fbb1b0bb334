#include "tests/elastic/simulation/ledger/leave_checks.h"

#include <algorithm>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {

void LeaveChecks::NoteAsked(const std::string& key, bool to_leave) {
  to_leave ? stays_.erase(key) : drained_.erase(key);
}

void LeaveChecks::NoteDrain(const std::string& key) {
  cluster_.world.Count("drains promised");
  drained_.emplace(key, cluster_.world.now());
  stays_.erase(key);
}

void LeaveChecks::NoteStay(const std::string& key) {
  World& world = cluster_.world;
  const SimWorker& worker = cluster_.fleet.at(key);
  world.Count("drains taken back");
  drained_.erase(key);
  if (!worker.runs()) {
    return;  // It ended just before.
  }
  const auto& known = cluster_.store.state()->workers;
  const auto stored = std::ranges::find_if(
      known, [&](const auto& one) { return one.second.incarnation == worker.incarnation; });
  if (stored == known.end()) {
    return world.Fail(fmt::format("{} is to stay, and the coordinator has not stored it", key));
  }
  world.Count("notices withdrawn", stored->second.withdrawn > 0 ? 1 : 0);
  if (const auto standing = worker.member->standing(); standing == wire::STANDING_STOPPED ||
                                                       standing == wire::STANDING_MOVING ||
                                                       standing == wire::STANDING_READY) {
    world.Count("drains taken back, of who gives its state");
  }
  if (worker.notices == stored->second.withdrawn) {  // Else a later one is on its way.
    stays_.insert(key);
  }
}

void LeaveChecks::Take(const LogEvent& event) {
  const SimWorker* worker = cluster_.fleet.Named(std::get<std::string>(*event.Find("worker")));
  if (worker == nullptr) {
    return;
  }
  if (event.kind == "drain_refused") {
    drained_.erase(worker->key);
  } else if (stays_.count(worker->key) > 0) {
    cluster_.world.Fail(worker->key + " was to stay after all, and is let go");
  }
}

void LeaveChecks::CheckRestored(const DurableState& restored) {
  for (const auto& [name, worker] : restored.workers) {
    const auto is_it = [&, incarnation = worker.incarnation](const std::string& key) {
      const SimWorker& known = cluster_.fleet.at(key);
      return known.runs() && known.incarnation == incarnation;
    };
    for (const auto& [key, since] : drained_) {
      if (is_it(key) && worker.leaves.empty()) {
        cluster_.world.Fail(
            fmt::format("{} was drained, and the coordinator goes on without knowing it", key));
      }
    }
    if (!worker.leaves.empty() && std::ranges::any_of(stays_, is_it)) {
      cluster_.world.Fail(
          fmt::format("{} was to stay, and the coordinator goes on without knowing it", name));
    }
  }
}

void LeaveChecks::BeginEra() {
  drained_.clear();
  stays_.clear();
}

void LeaveChecks::CheckBeginsAnew(const SimWorker& worker) {
  if (drained_.count(worker.key) > 0) {
    cluster_.world.Fail(worker.key + " was drained, and begins anew");
  }
}

// When all works again, a worker that leaves needs no longer than a change of plan.
void LeaveChecks::CheckDrained() {
  constexpr Duration kPatience = std::chrono::seconds(60);
  const Time now = cluster_.world.now();
  const auto healed = cluster_.world.healed_at();
  for (const auto& [key, since] : drained_) {
    if (healed && now - std::max(since, *healed) > kPatience && cluster_.fleet.at(key).runs()) {
      cluster_.world.Fail(
          fmt::format("{} was drained {:.0f} s ago, and is there", key, Seconds(now - since)));
    }
  }
}

}  // namespace heddle::elastic
