/// \file
/// One function for each kind of fault (FaultKind), which injects it. It returns the target and
/// what was done to it, for people; empty: nothing was done, for want of a target. `random` is used
/// by this fault alone.
#pragma once

#include <string>

#include "base/random.h"
#include "tests/elastic/simulation/history/fault.h"

namespace heddle::elastic {

class Cluster;

namespace faults {

// fault_workers.cc
std::string Kill(Cluster& cluster, const Fault& fault, Random& random);
std::string KillHost(Cluster& cluster, const Fault& fault, Random& random);
std::string KillHalf(Cluster& cluster, const Fault& fault, Random& random);
std::string Stop(Cluster& cluster, const Fault& fault, Random& random);
std::string Slow(Cluster& cluster, const Fault& fault, Random& random);
std::string Join(Cluster& cluster, const Fault& fault, Random& random);
std::string JoinAndDie(Cluster& cluster, const Fault& fault, Random& random);
std::string JoinAbsurd(Cluster& cluster, const Fault& fault, Random& random);
std::string JoinUnlike(Cluster& cluster, const Fault& fault, Random& random);
std::string Drain(Cluster& cluster, const Fault& fault, Random& random);
std::string CancelDrain(Cluster& cluster, const Fault& fault, Random& random);
std::string Notice(Cluster& cluster, const Fault& fault, Random& random);
std::string JumpClock(Cluster& cluster, const Fault& fault, Random& random);
std::string PrepareError(Cluster& cluster, const Fault& fault, Random& random);
std::string OtherProgram(Cluster& cluster, const Fault& fault, Random& random);
std::string ChangeMoves(Cluster& cluster, const Fault& fault, Random& random);
std::string Alter(Cluster& cluster, const Fault& fault, Random& random);
std::string FailAlone(Cluster& cluster, const Fault& fault, Random& random);
std::string Stranger(Cluster& cluster, const Fault& fault, Random& random);

// fault_people.cc
std::string Emulate(Cluster& cluster, const Fault& fault, Random& random);
std::string Suspend(Cluster& cluster, const Fault& fault, Random& random);
std::string Cancel(Cluster& cluster, const Fault& fault, Random& random);

// fault_coordinator.cc
std::string Restart(Cluster& cluster, const Fault& fault, Random& random);
std::string CutPower(Cluster& cluster, const Fault& fault, Random& random);
std::string CrashInActions(Cluster& cluster, const Fault& fault, Random& random);
std::string StopCoordinator(Cluster& cluster, const Fault& fault, Random& random);
std::string DoubleCoordinator(Cluster& cluster, const Fault& fault, Random& random);
std::string LoseStore(Cluster& cluster, const Fault& fault, Random& random);
std::string JumpCoordinatorClock(Cluster& cluster, const Fault& fault, Random& random);
std::string RefusePlans(Cluster& cluster, const Fault& fault, Random& random);
std::string SlowPlans(Cluster& cluster, const Fault& fault, Random& random);
std::string StoreErrors(Cluster& cluster, const Fault& fault, Random& random);
std::string SlowStore(Cluster& cluster, const Fault& fault, Random& random);
std::string CrashInStore(Cluster& cluster, const Fault& fault, Random& random);
std::string DamageCheckpoint(Cluster& cluster, const Fault& fault, Random& random);

// fault_networks.cc
std::string BreakStream(Cluster& cluster, const Fault& fault, Random& random);
std::string CutOff(Cluster& cluster, const Fault& fault, Random& random);
std::string BreakLink(Cluster& cluster, const Fault& fault, Random& random);
std::string OneWayLink(Cluster& cluster, const Fault& fault, Random& random);
std::string CutControl(Cluster& cluster, const Fault& fault, Random& random);
std::string Split(Cluster& cluster, const Fault& fault, Random& random);
std::string SlowLinks(Cluster& cluster, const Fault& fault, Random& random);
std::string Elsewhere(Cluster& cluster, const Fault& fault, Random& random);
std::string Late(Cluster& cluster, const Fault& fault, Random& random);

}  // namespace faults
}  // namespace heddle::elastic
