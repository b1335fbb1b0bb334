// Workers that were asked to leave, and workers that stay after all.
#include <algorithm>
#include <utility>

#include "elastic/control/membership/roster.h"

namespace heddle::elastic {
namespace {

// How many releases are kept. A released worker comes back while it still waits for a coordinator,
// and at most a few hundred leave within that time.
constexpr size_t kMaxReleases = 256;

}  // namespace

void Roster::Drain(const std::string& name,
                   const std::string& reason,
                   bool noticed,
                   int64_t notice) {
  Worker& worker = workers_.at(name);
  worker.draining = true;
  worker.notices.count = worker.notices.count || noticed;
  worker.leave_reason = reason;
  worker.notices.newest = std::max(worker.notices.newest, notice);
}

bool Roster::Stay(const std::string& name, bool withdraws) {
  Worker& worker = workers_.at(name);
  if (withdraws) {
    worker.notices.withdrawn = worker.notices.newest;
  }
  worker.notices.count = false;
  return std::exchange(worker.draining, false);
}

void Roster::KeepRelease(const std::string& name, bool requeue) {
  const Worker& worker = workers_.at(name);
  if (releases_.size() == kMaxReleases) {
    releases_.erase(releases_.begin());
  }
  releases_.push_back({worker.incarnation, worker.leave_reason, requeue});
}

void RefuseDrains(Roster& roster, const std::string& reason, Outbox& out) {
  bool any = false;
  for (const auto& [name, worker] : roster.workers()) {
    if (worker.draining) {
      out.Log("drain_refused", {{"worker", name}, {"reason", reason}});
      any = roster.Stay(name, /*withdraws=*/false);
    }
  }
  if (any) {
    out.Persist();
  }
}

}  // namespace heddle::elastic
