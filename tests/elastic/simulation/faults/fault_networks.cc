// Faults of the ways between workers, and between them and the coordinator.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"
#include "tests/elastic/simulation/faults/kinds.h"

namespace heddle::elastic::faults {

std::string BreakStream(Cluster& cluster, const Fault& /*fault*/, Random& random) {
  const SimWorker* worker = cluster.fleet.RandomRunning(random);
  if (worker == nullptr) {
    return "";
  }
  cluster.streams.Break(worker->key, true);
  return worker->key;
}

std::string CutOff(Cluster& cluster, const Fault& fault, Random& random) {
  SimWorker* worker = cluster.fleet.RandomRunning(random);
  if (worker == nullptr) {
    return "";
  }
  worker->cut_until = cluster.world.now() + FromSeconds(fault.seconds);
  cluster.fleet.At(worker->key, *worker->cut_until + Duration(1),
                   [&cluster](SimWorker& w) { cluster.streams.Break(w.key, true); });
  return fmt::format("{} for {} s", worker->key, fault.seconds);
}

// Both see at once that the connection is gone.
std::string BreakLink(Cluster& cluster, const Fault& /*fault*/, Random& random) {
  const SimWorker* one = cluster.fleet.RandomRunning(random);
  const SimWorker* other = cluster.fleet.RandomRunning(random);
  if (one == other) {
    return "";
  }
  cluster.links.Break(one->key, other->key);
  for (const auto& [mine, theirs] :
       {std::pair(one->key, other->key), std::pair(other->key, one->key)}) {
    cluster.fleet.After(mine, 1, 10, [&cluster, theirs = theirs](SimWorker& w) {
      const auto& run = w.trainer.run;
      if (run &&
          std::find(run->members.begin(), run->members.end(), theirs) != run->members.end()) {
        const std::string name = cluster.fleet.NameOf(theirs);
        cluster.training.Fail(w, UnavailableError("lost {}", name), name);
      }
    });
  }
  return one->key + " and " + other->key;
}

std::string OneWayLink(Cluster& cluster, const Fault& fault, Random& random) {
  const SimWorker* from = cluster.fleet.RandomRunning(random);
  const SimWorker* to = cluster.fleet.RandomRunning(random);
  if (from == to) {
    return "";
  }
  cluster.links.BreakDirection(from->key, to->key,
                               cluster.world.now() + FromSeconds(fault.seconds));
  return fmt::format("from {} to {} for {} s", from->key, to->key, fault.seconds);
}

// The workers still reach each other. What is said meanwhile comes late, or is lost with the
// stream.
std::string CutControl(Cluster& cluster, const Fault& fault, Random& random) {
  std::vector<SimWorker*> chosen = cluster.fleet.Running();
  if (chosen.empty()) {
    return "";
  }
  const std::array counts = {size_t{1}, (chosen.size() + 1) / 2, chosen.size()};
  const size_t count = counts[random.Below(counts.size())];
  while (chosen.size() > count) {
    chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(random.Below(chosen.size())));
  }
  const uint64_t how = random.Below(3);
  std::string names;
  for (SimWorker* worker : chosen) {
    names += (names.empty() ? "" : " ") + worker->key;
    cluster.streams.Block(*worker, FromSeconds(fault.seconds),
                          fault.kind != FaultKind::kCutToWorkers,
                          fault.kind != FaultKind::kCutFromWorkers, how == 0);
    if (how == 1) {
      cluster.streams.Break(worker->key, random.Below(2) == 0);
    }
  }
  const char* const kinds[] = {"until keepalives fail", "their streams break", "frozen"};
  return fmt::format("{} for {} s, {}", names, fault.seconds, kinds[how]);
}

std::string SlowLinks(Cluster& cluster, const Fault& /*fault*/, Random& random) {
  SimWorker* worker = cluster.fleet.RandomRunning(random);
  if (worker == nullptr) {
    return "";
  }
  worker->link_slowdown = 4;
  return worker->key;
}

std::string Split(Cluster& cluster, const Fault& fault, Random& random) {
  const Duration time = FromSeconds(fault.seconds);
  const Time until = cluster.world.now() + time;
  std::vector<SimWorker*> here;
  std::vector<SimWorker*> there;  // Away from the coordinator.
  std::string names;
  for (SimWorker* worker : cluster.fleet.Running()) {
    (random.Below(2) == 0 ? here : there).push_back(worker);
  }
  for (SimWorker* worker : there) {
    names += (names.empty() ? "" : " ") + worker->key;
    cluster.streams.Block(*worker, time, true, true, true);
    for (const SimWorker* other : here) {
      cluster.links.BreakDirection(worker->key, other->key, until);
      cluster.links.BreakDirection(other->key, worker->key, until);
    }
  }
  return names.empty() ? "" : fmt::format("{} away for {} s", names, fault.seconds);
}

// They notice it when they look the name up again: their streams end.
std::string Elsewhere(Cluster& cluster, const Fault& fault, Random& random) {
  std::string names;
  for (SimWorker* worker : cluster.fleet.Running()) {
    if (random.Below(2) == 0) {
      names += (names.empty() ? "" : " ") + worker->key;
      worker->control.elsewhere_until = cluster.world.now() + FromSeconds(fault.seconds);
      cluster.streams.Break(worker->key, true);
    }
  }
  return names.empty() ? "" : fmt::format("{} for {} s", names, fault.seconds);
}

std::string Late(Cluster& cluster, const Fault& fault, Random& random) {
  SimWorker* worker = cluster.fleet.RandomRunning(random);
  if (worker == nullptr) {
    return "";
  }
  worker->control.late_until = cluster.world.now() + FromSeconds(fault.seconds);
  return fmt::format("{} for {} s", worker->key, fault.seconds);
}

}  // namespace heddle::elastic::faults
