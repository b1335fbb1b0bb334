// Who is at fault is not who reported: accusations are collected for one probe window. An accused
// worker that fell silent is lost. When all of them still answer, a link between two live workers
// is broken: the one that most others accuse goes, ties go to the higher rank, so that both sides
// of the link never take turns.
#include <algorithm>

#include "elastic/control/coordinator_state.h"

namespace heddle::elastic {

void Coordinator::State::Accuse(const Worker& accuser,
                                const std::string& accused,
                                const std::string& reason,
                                Time now) {
  if (!accused.empty() && Find(accused) == nullptr) {
    return;  // Lost already.
  }
  const bool repeated =
      std::any_of(accusations.begin(), accusations.end(), [&](const Accusation& accusation) {
        return accusation.accuser == accuser.name && accusation.accused == accused;
      });
  if (!repeated) {
    accusations.push_back({accuser.name, accused, reason, now});
  }
  // Whoever has broken away already and fits the accusation is lost: no grace is needed.
  std::vector<std::string> broken;
  for (const auto& [name, worker] : workers) {
    const bool fits = accused.empty() ? IsMember(name) : name == accused;
    if (fits && worker.seen && worker.connection == 0) {
      broken.push_back(name);
    }
  }
  for (const std::string& name : broken) {
    Lose(name, "its connections broke", now);
  }
}

void Coordinator::State::OnPeerLost(Worker& worker, const wire::PeerLost& message, Time now) {
  const bool of_held = held && message.generation() == held->number && IsMember(worker.name) &&
                       (!transition || transition->kind == Transition::Kind::kChange);
  const bool of_move =
      transition && transition->stage == Transition::Stage::kMove &&
      (message.generation() == transition->generation || message.generation() == transition->fence);
  if (of_held || of_move) {
    Accuse(worker, message.peer() == worker.name ? "" : message.peer(), message.reason(), now);
  }
}

void Coordinator::State::CheckAccusations(Time now) {
  const bool due = std::any_of(
      accusations.begin(), accusations.end(),
      [&](const Accusation& accusation) { return now - accusation.at >= policy().probe; });
  if (!due) {
    return;
  }
  std::map<std::string, int> votes;
  std::vector<std::string> silent;
  for (const Accusation& accusation : accusations) {
    const Worker* target = Find(accusation.accused);
    if (target == nullptr) {
      continue;
    }
    ++votes[accusation.accused];
    // Half of the window leaves room for a heartbeat that was on its way when the peer saw the
    // loss.
    if (!target->seen || target->last_word <= accusation.at + policy().probe / 2) {
      silent.push_back(accusation.accused);
    }
  }
  const std::vector<Accusation> reports = std::exchange(accusations, {});
  if (!silent.empty()) {
    for (const std::string& name : silent) {
      Lose(name, "its peers lost it and it fell silent", now);
    }
    return;
  }
  if (votes.empty()) {  // Somebody failed without knowing why: try once more with everybody.
    if (phase == Phase::kRunning || transition) {
      BeginRecovery(now);
    }
    return;
  }
  const std::vector<std::string>& ranks =
      transition && transition->stage == Transition::Stage::kMove ? transition->participants
      : held                                                      ? held->plan.members
                                                                  : std::vector<std::string>();
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
  std::string reason;
  for (const Accusation& report : reports) {
    if (report.accused == worst->first) {
      reason = fmt::format("its link to {} is broken: {}", report.accuser, report.reason);
      break;
    }
  }
  Lose(worst->first, reason, now);
}

}  // namespace heddle::elastic
