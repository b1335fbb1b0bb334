// What people ask the coordinator for.
#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"
#include "tests/elastic/simulation/faults/kinds.h"

namespace heddle::elastic::faults {

std::string Emulate(Cluster& cluster, const Fault& /*fault*/, Random& random) {
  const SimWorker* worker = cluster.fleet.RandomRunning(random);
  if (worker == nullptr || !cluster.coordinator.answers()) {
    return "";
  }
  EmulateRequested asked;
  asked.worker = random.Below(4) == 0 ? "nobody" : worker->member->name();
  asked.emulation.set_speed(0.5);
  asked.emulation.set_memory_bytes(1'000'000'000);
  asked.emulation.set_link_bytes_per_second(1'000'000);
  asked.set_speed = random.Below(2) == 0;
  asked.set_memory = random.Below(2) == 0;
  asked.set_link = random.Below(2) == 0;
  cluster.coordinator.leader()->Tell(asked);
  return asked.worker;
}

std::string Suspend(Cluster& cluster, const Fault& /*fault*/, Random& /*random*/) {
  if (!cluster.world.options().local || !cluster.coordinator.answers()) {
    return "";
  }
  cluster.coordinator.leader()->Tell(SuspendRequested{"SIGTERM"});
  return "the job";
}

std::string Cancel(Cluster& cluster, const Fault& /*fault*/, Random& /*random*/) {
  if (!cluster.world.options().local || !cluster.coordinator.answers()) {
    return "";
  }
  cluster.coordinator.leader()->Tell(CancelRequested{kCancelled});
  return "the job";
}

}  // namespace heddle::elastic::faults
