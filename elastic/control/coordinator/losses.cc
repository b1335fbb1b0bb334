// Gives up workers: those that nothing shows to live, those that others accuse, and those that
// others wait for in vain.
#include <algorithm>
#include <utility>

#include "elastic/control/coordinator/coordinator_state.h"

namespace heddle::elastic {
namespace {

// One operation in a step, such as an operator or a save, takes no longer than this many steps.
constexpr double kStepsToDoNothing = 10;

}  // namespace

bool Coordinator::State::StepsRun() const {
  const auto& transition = transitions_.current();
  return IsRunning() && blame_.empty() && (!suspension_.IsActive() || suspension_.IsStopping()) &&
         (!transition ||
          (transition->kind == Transition::Kind::kChange && !transition->In<Moving>()));
}

void Coordinator::State::JudgeSilence(Time now, Outbox& out) {
  const auto& transition = transitions_.current();
  const bool was_cut_off = failure_detector_.cut_off_since().has_value();
  std::set<std::string> involved;
  for (const auto& [name, worker] : roster_.workers()) {
    if (transition && transition->Involves(name)) {
      involved.insert(name);
    }
  }
  const FailureDetector::Verdict verdict = failure_detector_.Judge({.roster = roster_,
                                                                    .generations = generations_,
                                                                    .involved = involved,
                                                                    .steps_run = StepsRun(),
                                                                    .step_seconds = StepSeconds(),
                                                                    .policy = policy(),
                                                                    .now = now});
  if (failure_detector_.cut_off_since() && !was_cut_off) {
    out.Log("cut_off", {{"workers", static_cast<int64_t>(roster_.workers().size())}});
  }
  std::set<std::string> absent = verdict.absent;
  // A lost worker is absent, too, as the loss limit may hold its loss; not one that is only slow.
  for (const Loss& loss : verdict.lost) {
    const Worker& worker = roster_.at(loss.worker);
    if (worker.broken_at || now - worker.last_heard_at >= policy().lease) {
      absent.insert(loss.worker);
    }
  }
  roster_.SetAbsent(absent);
  GiveUp(verdict.lost, now, out);
}

void Coordinator::State::JudgeAnswers(Time now, Outbox& out) {
  if (failure_detector_.cut_off_since() || now < failure_detector_.excused_until()) {
    return;
  }
  TransitionContext context = MakeContext(now, out);
  Effects due = transitions_.CheckDeadline(context);
  std::vector<Loss> late = std::exchange(due.losses, {});
  if (const auto before = loss_limit_.hold()) {
    loss_limit_.Look(late, roster_, policy(), now);
    if (!loss_limit_.hold()) {
      TellHold(before, "most are heard", now, out);
      // Messages of the other suspects may be on their way, and no worker could reply meanwhile.
      failure_detector_.Excuse(now + policy().lease / 2);
      transitions_.Excuse(now - before->since);
      late.clear();
    }
  }
  Apply(due, now, out);
  GiveUp(late, now, out);
}

void Coordinator::State::GiveUp(const std::vector<Loss>& suspected, Time now, Outbox& out) {
  const auto before = loss_limit_.hold();
  const std::vector<Loss> losses = loss_limit_.Admit(suspected, roster_, policy(), now);
  TellHold(before, "it lasts", now, out);
  Apply({.losses = losses}, now, out);
}

void Coordinator::State::TellHold(const std::optional<LossLimit::Hold>& before,
                                  const char* why_over,
                                  Time now,
                                  Outbox& out) {
  const auto& hold = loss_limit_.hold();
  if (hold && !before) {
    out.Log("losses_held", {{"suspects", static_cast<int64_t>(hold->suspects)},
                            {"workers", static_cast<int64_t>(hold->workers)},
                            {"seconds", Seconds(policy().mass_silence)}});
  } else if (before && !hold) {
    out.Log("losses_released",
            {{"seconds", Seconds(now - before->since)}, {"reason", std::string(why_over)}});
    failure_detector_.Reconsider();  // The held losses are judged again.
  }
}

void Coordinator::State::JudgeAccusations(Time now, Outbox& out) {
  const auto& transition = transitions_.current();
  const Moving* moving = transition ? transition->In<Moving>() : nullptr;
  std::vector<std::string> ranks;
  if (moving != nullptr) {
    ranks = moving->next.participants;
  } else if (generations_.held()) {
    ranks = generations_.held()->plan.members;
  }
  Blame::Verdict verdict = blame_.Judge(roster_, ranks, policy().probe, now);
  for (auto& [name, reason] : verdict.reports) {
    reason = "failed, and names nobody: " + reason;
  }
  TakeVerdict(verdict, now, out);
}

void Coordinator::State::TakeVerdict(const Blame::Verdict& verdict, Time now, Outbox& out) {
  Apply({.losses = verdict.losses}, now, out);
  if (verdict.unknown && (IsRunning() || transitions_.current())) {
    // No worker is known to be at fault: try once more with all of them.
    for (const auto& [name, reason] : verdict.reports) {
      decisions_.Note({.worker = name, .what = reason});
    }
    Recover(Cause::kFailure, now, out);
  }
}

// Finds members that hang in a step although their heartbeats go on.
void Coordinator::State::JudgeWaits(Time now, Outbox& out) {
  const auto limit =
      std::max(policy().hang_timeout, FromSeconds(kStepsToDoNothing * StepSeconds()));
  if (!StepsRun() || failure_detector_.cut_off_since() || now < failure_detector_.excused_until() ||
      !blame_.WaitsAreDue(limit, now)) {
    return;
  }
  const DurableGeneration& held = *generations_.held();
  std::vector<std::string> running = held.plan.members;
  std::erase_if(running, [&](const auto& name) {  // A member that stopped as asked may do nothing.
    const Worker* worker = roster_.Find(name);
    return steps_.finished().count(name) > 0 ||
           (worker != nullptr && worker->standing == wire::STANDING_STOPPED);
  });
  const WaitGraph waits = WaitsAmong(running, {held.number}, roster_,
                                     failure_detector_.stepped_at(), policy().lease / 2, now);
  const Duration patience =
      std::max(limit, policy().stop_timeout);  // A save between steps may take that long.
  TakeVerdict(blame_.JudgeWaits(waits, limit, patience, now), now, out);
}

}  // namespace heddle::elastic
