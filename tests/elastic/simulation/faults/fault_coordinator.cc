// Faults of the coordinator's process, its planner, its store and its checkpoints.
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"
#include "tests/elastic/simulation/faults/kinds.h"

namespace heddle::elastic::faults {
namespace {

std::string ForSeconds(const Fault& fault) {
  return fmt::format("for {} s", fault.seconds);
}

}  // namespace

std::string Restart(Cluster& cluster, const Fault& fault, Random& /*random*/) {
  if (!cluster.coordinator.runs()) {
    return "";
  }
  cluster.coordinator.Stop(false);
  cluster.coordinator.StartAfter(FromSeconds(fault.seconds));
  return "down " + ForSeconds(fault);
}

std::string CutPower(Cluster& cluster, const Fault& fault, Random& /*random*/) {
  if (!cluster.coordinator.runs()) {
    return "";
  }
  cluster.coordinator.Stop(true);
  cluster.coordinator.StartAfter(FromSeconds(fault.seconds));
  return "down " + ForSeconds(fault);
}

std::string CrashInActions(Cluster& cluster, const Fault& fault, Random& random) {
  if (!cluster.coordinator.runs()) {
    return "";
  }
  const auto actions = static_cast<int>(1 + random.Below(20));
  const bool power = random.Below(2) == 0;
  cluster.coordinator.leader()->Crash(actions, power, FromSeconds(fault.seconds));
  return fmt::format("before the {}. action from now, down for {} s{}", actions, fault.seconds,
                     power ? ", by loss of power" : "");
}

std::string StopCoordinator(Cluster& cluster, const Fault& fault, Random& /*random*/) {
  if (!cluster.coordinator.runs()) {
    return "";
  }
  cluster.coordinator.leader()->Pause(FromSeconds(fault.seconds));
  return ForSeconds(fault);
}

// It is known to have led: something of it is stored. Its lease ends, wrongly or not.
std::string DoubleCoordinator(Cluster& cluster, const Fault& fault, Random& random) {
  CoordinatorProcess* const first = cluster.coordinator.leader();
  if (first == nullptr || !cluster.store.state()) {
    return "";
  }
  const bool stops = random.Below(3) > 0;
  const double after_ms = random.Below(2) == 0 ? 0 : 5000 * random.Uniform();
  if (stops) {
    first->Pause(FromSeconds(fault.seconds));
  }
  cluster.world.After(after_ms, after_ms, [&cluster, first] {
    if (cluster.coordinator.leader() == first && !cluster.world.healed()) {
      cluster.world.Count("coordinator doubled");
      cluster.coordinator.TakeOver();
    }
  });
  return fmt::format("{}, another one leads after {:.3f} s", stops ? ForSeconds(fault) : "works on",
                     after_ms / 1000);
}

std::string LoseStore(Cluster& cluster, const Fault& fault, Random& /*random*/) {
  if (!cluster.coordinator.runs()) {
    return "";
  }
  cluster.coordinator.LoseStore();
  cluster.coordinator.StartAfter(FromSeconds(fault.seconds));
  return "another one comes after " + fmt::format("{} s", fault.seconds);
}

std::string JumpCoordinatorClock(Cluster& cluster, const Fault& fault, Random& /*random*/) {
  if (!cluster.coordinator.answers()) {
    return "";
  }
  cluster.coordinator.leader()->JumpClock(FromSeconds(fault.seconds));
  return fmt::format("by {} s", fault.seconds);
}

std::string RefusePlans(Cluster& cluster, const Fault& fault, Random& /*random*/) {
  cluster.planner.RefuseUntil(cluster.world.now() + FromSeconds(fault.seconds));
  return ForSeconds(fault);
}

std::string SlowPlans(Cluster& cluster, const Fault& fault, Random& /*random*/) {
  cluster.planner.DelayUntil(cluster.world.now() + FromSeconds(fault.seconds));
  return ForSeconds(fault);
}

std::string StoreErrors(Cluster& cluster, const Fault& fault, Random& /*random*/) {
  cluster.store.FailUntil(cluster.world.now() + FromSeconds(fault.seconds));
  return ForSeconds(fault);
}

std::string SlowStore(Cluster& cluster, const Fault& fault, Random& /*random*/) {
  cluster.store.DelayNext(FromSeconds(fault.seconds));
  return "the next write takes " + fmt::format("{} s", fault.seconds);
}

std::string CrashInStore(Cluster& cluster, const Fault& fault, Random& random) {
  if (!cluster.coordinator.runs()) {
    return "";
  }
  const bool power = random.Below(2) == 0;
  cluster.coordinator.leader()->Crash(0, power, FromSeconds(fault.seconds));
  return fmt::format("in the next write that takes time, down for {} s{}", fault.seconds,
                     power ? ", by loss of power" : "");
}

std::string DamageCheckpoint(Cluster& cluster, const Fault& /*fault*/, Random& /*random*/) {
  const std::vector<int64_t> found = cluster.storage.Find();
  const auto sound = std::count_if(found.begin(), found.end(), [&](int64_t step) {
    return !cluster.storage.IsDamaged(step) &&
           cluster.ledger.Counts(*cluster.storage.GenerationOf(step), step);
  });
  if (sound < 2) {  // There is another one to go on from.
    return "";
  }
  cluster.storage.Damage(found.back());
  return fmt::format("that of step {}", found.back());
}

}  // namespace heddle::elastic::faults
