#include "elastic/control/membership/loss_limit.h"

#include <algorithm>
#include <set>

#include "elastic/control/deadline.h"

namespace heddle::elastic {
namespace {

// True if the worker is silent for half a lease, which is several heartbeats: it may be about to be
// lost, although the leases of others end a little sooner.
bool IsUnheard(const Worker& worker, const JobPolicy& policy, Time now) {
  return worker.seen && now - worker.last_heard_at >= policy.lease / 2;
}

// True if the worker's process or its kernel closed the connection. If the worker was silent
// before, only the keepalive timeout has closed it.
bool WasClosed(const Worker& worker, const JobPolicy& policy) {
  return worker.broken_at && *worker.broken_at - worker.last_heard_at < policy.lease / 2;
}

bool IsTooMany(const LossLimit::Hold& count) {
  return count.suspects > 1 && 2 * count.suspects > count.workers;
}

}  // namespace

void LossLimit::NoteAccused(const Worker& accused, Time now) {
  accused_hosts_[accused.host] = now;
  if (!accused.failure_domain.empty()) {
    accused_domains_[accused.failure_domain] = now;
  }
}

bool LossLimit::IsBeyondDoubt(const Worker& worker, const JobPolicy& policy, Time now) const {
  return WasClosed(worker, policy) || now - worker.last_heard_at >= policy.cut_off_timeout ||
         accused_hosts_.count(worker.host) > 0 || accused_domains_.count(worker.failure_domain) > 0;
}

void LossLimit::Forget(const JobPolicy& policy, Time now) {
  const auto is_over = [&](Time at) { return now - at >= policy.mass_silence; };
  std::erase_if(accused_hosts_, [&](const auto& accused) { return is_over(accused.second); });
  std::erase_if(accused_domains_, [&](const auto& accused) { return is_over(accused.second); });
  std::erase_if(given_up_, [&](const auto& lost) { return is_over(lost.second); });
}

LossLimit::Hold LossLimit::Count(const std::vector<Loss>& suspected,
                                 const Roster& roster,
                                 const JobPolicy& policy,
                                 Time now) const {
  std::set<std::string> suspects;
  std::set<std::string> workers;
  for (const auto& [name, at] : given_up_) {
    suspects.insert(name);
    workers.insert(name);
  }
  for (const Loss& loss : suspected) {
    if (!IsBeyondDoubt(roster.at(loss.worker), policy, now)) {
      suspects.insert(loss.worker);
    }
  }
  for (const auto& [name, worker] : roster.workers()) {
    workers.insert(name);
    if (IsUnheard(worker, policy, now) && !IsBeyondDoubt(worker, policy, now)) {
      suspects.insert(name);
    }
  }
  return {.since = now,
          .suspects = static_cast<int>(suspects.size()),
          .workers = static_cast<int>(workers.size())};
}

std::vector<Loss> LossLimit::Admit(const std::vector<Loss>& suspected,
                                   const Roster& roster,
                                   const JobPolicy& policy,
                                   Time now) {
  looked_at_ = now;
  if (suspected.empty()) {
    return {};
  }
  Forget(policy, now);
  const Hold count = Count(suspected, roster, policy, now);
  const bool is_over = hold_ && now - hold_->since >= policy.mass_silence;
  const bool holds = !is_over && IsTooMany(count);
  std::vector<Loss> admitted;
  for (const Loss& loss : suspected) {
    const bool proven = IsBeyondDoubt(roster.at(loss.worker), policy, now);
    if (proven || !holds) {
      admitted.push_back(loss);
    }
    if (!proven && !holds) {
      given_up_[loss.worker] = now;
    }
  }
  if (is_over) {  // The losses are real: later ones are counted without them.
    given_up_.clear();
    hold_.reset();
  } else if (admitted.size() < suspected.size() && !hold_) {
    hold_ = count;
  }
  return admitted;
}

void LossLimit::Look(const std::vector<Loss>& late,
                     const Roster& roster,
                     const JobPolicy& policy,
                     Time now) {
  if (hold_) {
    Forget(policy, now);
    looked_at_ = now;
    if (!IsTooMany(Count(late, roster, policy, now))) {
      hold_.reset();
    }
  }
}

std::optional<Time> LossLimit::NextDeadline(const JobPolicy& policy) const {
  const bool is_due = hold_ && hold_->since + policy.mass_silence > looked_at_;
  return is_due ? std::optional(hold_->since + policy.mass_silence) : std::nullopt;
}

}  // namespace heddle::elastic
