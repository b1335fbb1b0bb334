#include "elastic/control/membership/blame.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "elastic/control/deadline.h"

namespace heddle::elastic {
namespace {

// Waits are judged this many times within the time that a worker may do nothing.
constexpr int kLooks = 16;

}  // namespace

std::vector<Loss> Blame::Accuse(const std::string& accuser,
                                const std::string& accused,
                                const std::string& reason,
                                const Roster& roster,
                                const Generations& generations,
                                Time now) {
  if (!accused.empty() && roster.Find(accused) == nullptr) {
    return {};  // It was given up already.
  }
  const bool repeated =
      std::any_of(accusations_.begin(), accusations_.end(), [&](const Accusation& accusation) {
        return accusation.accuser == accuser && accusation.accused == accused;
      });
  if (!repeated) {
    accusations_.push_back({accuser, accused, reason, now});
  }
  std::vector<Loss> broken;
  for (const auto& [name, worker] : roster.workers()) {
    const bool fits = accused.empty() ? generations.IsMember(name) : name == accused;
    if (fits && worker.seen && worker.connection == 0) {
      broken.push_back({.worker = name,
                        .reason = "its connections broke",
                        .accusers = AccusersOf(name, generations.IsMember(name))});
    }
  }
  return broken;
}

bool Blame::Fits(const std::string& worker, bool is_member) const {
  return std::any_of(accusations_.begin(), accusations_.end(), [&](const Accusation& accusation) {
    return accusation.accused == worker || (accusation.accused.empty() && is_member);
  });
}

std::vector<std::string> Blame::AccusersOf(const std::string& worker, bool is_member) const {
  std::vector<std::string> accusers;
  for (const Accusation& accusation : accusations_) {
    if (accusation.accused == worker || (accusation.accused.empty() && is_member)) {
      accusers.push_back(accusation.accuser);
    }
  }
  return accusers;
}

Blame::Verdict Blame::Judge(const Roster& roster,
                            const std::vector<std::string>& ranks,
                            Duration probe,
                            Time now) {
  const bool due =
      std::any_of(accusations_.begin(), accusations_.end(),
                  [&](const Accusation& accusation) { return now - accusation.at >= probe; });
  if (!due) {
    return {};
  }
  Verdict verdict;
  bool named = false;
  for (const Accusation& accusation : accusations_) {
    const Worker* target = roster.Find(accusation.accused);
    named = named || target != nullptr;
    // Half of the window leaves room for a heartbeat that was on its way when the peer saw the
    // loss.
    if (target != nullptr &&
        (!target->seen || target->last_heard_at <= accusation.at + probe / 2)) {
      verdict.losses.push_back({.worker = accusation.accused,
                                .reason = "its peers lost it and it fell silent",
                                .accusers = AccusersOf(accusation.accused, false)});
    }
  }
  if (!named) {
    verdict.unknown = true;
    for (const Accusation& accusation : accusations_) {
      verdict.reports[accusation.accuser] = accusation.reason;
    }
  } else if (verdict.losses.empty()) {
    verdict.losses.push_back(MostAccused(accusations_, roster, ranks));
    verdict.losses.front().accusers = AccusersOf(verdict.losses.front().worker, false);
  }
  accusations_.clear();
  return verdict;
}

Loss Blame::MostAccused(const std::vector<Accusation>& accusations,
                        const Roster& roster,
                        const std::vector<std::string>& ranks) {
  std::map<std::string, int> votes;
  for (const Accusation& accusation : accusations) {
    if (roster.Find(accusation.accused) != nullptr) {
      ++votes[accusation.accused];
    }
  }
  const auto rank = [&](const std::string& name) {
    return std::find(ranks.begin(), ranks.end(), name) - ranks.begin();
  };
  auto worst = votes.begin();
  for (auto it = votes.begin(); it != votes.end(); ++it) {
    if (it->second > worst->second ||
        (it->second == worst->second && rank(it->first) > rank(worst->first))) {
      worst = it;
    }
  }
  // Both ends of a broken link accuse each other: the accuser of the worst one may be the only
  // other accused worker.
  const auto report = std::find_if(
      accusations.begin(), accusations.end(),
      [&](const Accusation& accusation) { return accusation.accused == worst->first; });
  return {worst->first,
          fmt::format("its link to {} is broken: {}", report->accuser, report->reason)};
}

bool Blame::WaitsAreDue(Duration limit, Time now) {
  if (now - waits_judged_at_ < limit / kLooks) {
    return false;
  }
  waits_judged_at_ = now;
  return true;
}

Blame::Verdict Blame::JudgeWaits(const WaitGraph& waits,
                                 Duration limit,
                                 Duration patience,
                                 Time now) {
  const WaitGraph::Verdict found = waits.Judge(limit, patience, now);
  Verdict verdict;
  for (const WaitGraph::Culprit& culprit : found.culprits) {
    verdict.losses.push_back(
        {.worker = culprit.worker, .reason = culprit.reason, .accusers = culprit.waiters});
  }
  if (found.reason.empty()) {
    return verdict;
  }
  const bool circle = !found.circle.empty();
  if (had_circle_ && circle) {
    verdict.losses.push_back({.worker = found.last, .reason = "again " + found.reason});
  } else {
    verdict.unknown = true;
    verdict.reports[""] = found.reason;
  }
  had_circle_ = had_circle_ || circle;
  return verdict;
}

std::optional<Time> Blame::NextDeadline(Duration probe) const {
  std::optional<Time> next;
  for (const Accusation& accusation : accusations_) {
    Earlier(next, accusation.at + probe);
  }
  return next;
}

}  // namespace heddle::elastic
