#include "elastic/control/membership/blame.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "elastic/control/deadline.h"

namespace heddle::elastic {

std::vector<Loss> Blame::Accuse(const std::string& accuser,
                                const std::string& accused,
                                const std::string& reason,
                                const Roster& roster,
                                const Generations& generations,
                                Time now) {
  if (!accused.empty() && roster.Find(accused) == nullptr) {
    return {};  // Lost already.
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
      broken.push_back({name, "its connections broke"});
    }
  }
  return broken;
}

bool Blame::Fits(const std::string& worker, bool is_member) const {
  return std::any_of(accusations_.begin(), accusations_.end(), [&](const Accusation& accusation) {
    return accusation.accused == worker || (accusation.accused.empty() && is_member);
  });
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
    if (target != nullptr && (!target->seen || target->last_word <= accusation.at + probe / 2)) {
      verdict.losses.push_back({accusation.accused, "its peers lost it and it fell silent"});
    }
  }
  const std::vector<Accusation> reports = std::exchange(accusations_, {});
  verdict.unknown = !named;
  if (named && verdict.losses.empty()) {
    verdict.losses.push_back(MostAccused(reports, roster, ranks));
  }
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
  // Both ends of one broken link accuse each other: the accuser of the worst may be the only
  // accused else.
  const auto report = std::find_if(
      accusations.begin(), accusations.end(),
      [&](const Accusation& accusation) { return accusation.accused == worst->first; });
  return {worst->first,
          fmt::format("its link to {} is broken: {}", report->accuser, report->reason)};
}

std::optional<Time> Blame::NextDeadline(Duration probe) const {
  std::optional<Time> next;
  for (const Accusation& accusation : accusations_) {
    Earlier(next, accusation.at + probe);
  }
  return next;
}

}  // namespace heddle::elastic
