// The workers that a plan may count on.
#include <algorithm>

#include "elastic/control/membership/roster.h"

namespace heddle::elastic {

std::set<std::string> CandidatesOf(const Roster& roster) {
  std::set<std::string> names;
  for (const auto& [name, worker] : roster.workers()) {
    if (worker.IsCandidate()) {
      names.insert(name);
    }
  }
  return names;
}

std::set<std::string> CarriersOf(const Roster& roster, int least) {
  std::set<std::string> names = CandidatesOf(roster);
  if (static_cast<int>(names.size()) < std::max(1, least)) {
    for (const auto& [name, worker] : roster.workers()) {
      if (worker.IsAble()) {
        names.insert(name);
      }
    }
  }
  return names;
}

bool AllLeave(const Roster& roster) {
  return CandidatesOf(roster).empty() &&
         std::any_of(roster.workers().begin(), roster.workers().end(),
                     [](const auto& worker) { return worker.second.draining; });
}

std::set<std::string> ProfilingHosts(const Roster& roster) {
  std::set<std::string> hosts;
  for (const auto& [name, worker] : roster.workers()) {
    if (worker.profiling_until) {
      hosts.insert(worker.host);
    }
  }
  return hosts;
}

bool AnyNoticed(const Roster& roster) {
  return std::any_of(roster.workers().begin(), roster.workers().end(),
                     [](const auto& worker) { return worker.second.notices.count; });
}

}  // namespace heddle::elastic
