#include "elastic/control/transition/stages.h"

#include <algorithm>

#include "elastic/control/deadline.h"

namespace heddle::elastic {

const NextGeneration* Transition::next() const {
  if (const auto* preparing = In<Preparing>()) {
    return &preparing->next;
  }
  if (const auto* stopping = In<Stopping>()) {
    return &stopping->next;
  }
  const auto* moving = In<Moving>();
  return moving == nullptr ? nullptr : &moving->next;
}

const std::set<std::string>& Transition::awaited() const {
  static const std::set<std::string> kNobody;
  return std::visit(
      [](const auto& s) -> const std::set<std::string>& {
        if constexpr (requires { s.awaited; }) {
          return s.awaited;
        } else {
          return kNobody;
        }
      },
      stage);
}

std::optional<Time> Transition::OthersProgress(const Roster& roster) const {
  const auto* stopping = In<Stopping>();
  const std::vector<std::string>* others = nullptr;
  if (stopping != nullptr) {
    others = &stopping->members;  // Members run a step together, so each waits for the slowest.
  } else if (In<Moving>() != nullptr) {
    others = &next()->participants;
  }
  std::optional<Time> last;
  if (others != nullptr) {
    for (const std::string& name : *others) {
      const Worker* other = roster.Find(name);
      last = other == nullptr ? last : std::max(last, other->progressed_at);
    }
  }
  return last;
}

std::optional<Time> Transition::DeadlineOf(const Worker& worker,
                                           std::optional<Time> others_progress,
                                           const JobPolicy& policy) const {
  const auto deadline = std::visit([](const auto& s) { return s.deadline; }, stage);
  Duration timeout = policy.reply_timeout;
  bool waits = false;
  if (In<Stopping>() != nullptr) {
    timeout = policy.stop_timeout;
    waits = true;
  } else if (In<Moving>() != nullptr) {
    timeout = policy.move_timeout;
    waits = worker.waits.any;
  }
  const std::optional<Time> last =
      waits ? std::max(worker.progressed_at, others_progress) : worker.progressed_at;
  return deadline && last ? std::max(*deadline, *last + timeout) : deadline;
}

std::optional<Time> Transition::Deadline(const Roster& roster, const JobPolicy& policy) const {
  if (awaited().empty()) {
    if (In<Halting>() != nullptr) {
      return std::nullopt;  // All have replied, or are lost; only further losses are waited for.
    }
    return std::visit([](const auto& s) { return s.deadline; }, stage);
  }
  const std::optional<Time> others_progress = OthersProgress(roster);
  std::optional<Time> first;
  for (const std::string& worker : awaited()) {
    Earlier(first, DeadlineOf(roster.at(worker), others_progress, policy));
  }
  return first;
}

bool Transition::TakesPart(const std::string& worker) const {
  return next() != nullptr && std::find(next()->participants.begin(), next()->participants.end(),
                                        worker) != next()->participants.end();
}

bool Transition::Involves(const std::string& worker) const {
  const auto* planning = In<Planning>();
  return TakesPart(worker) || awaited().count(worker) > 0 ||
         (planning != nullptr && planning->asked.count(worker) > 0);
}

std::set<std::string> AbleFor(Transition::Kind kind, const Roster& roster, int least) {
  return kind == Transition::Kind::kRecover ? CarriersOf(roster, least) : CandidatesOf(roster);
}

wire::Halt MakeHalt(const Transition& transition, int64_t known_step) {
  wire::Halt halt;
  halt.set_generation(transition.fence);
  halt.set_known_step(known_step);
  return halt;
}

wire::Prepare MakePrepare(const Transition& transition, const Roster& roster) {
  const NextGeneration& next = *transition.next();
  wire::Prepare message;
  message.set_generation(transition.generation);
  message.set_plan_json(next.plan.plan_json);
  for (const std::string& name : next.plan.members) {
    wire::Member& member = *message.add_members();
    member.set_name(name);
    member.set_address(roster.at(name).data_address);
  }
  *message.mutable_links() = next.links;
  for (const std::vector<int32_t>& ranks : next.holders) {
    message.add_holders()->mutable_ranks()->Assign(ranks.begin(), ranks.end());
  }
  return message;
}

wire::Start MakeStart(const Transition& transition,
                      const Roster& roster,
                      const Generations& generations,
                      const Steps& steps,
                      const Saves& saves,
                      const JobPolicy& policy) {
  const NextGeneration& next = *transition.next();
  const SourceOption& origin = next.origin;
  wire::Start message;
  message.set_generation(transition.generation);
  message.set_applied_step(origin.step);
  if (origin.settle) {
    *message.mutable_settle() = *origin.settle;
  }
  switch (origin.source) {
    case Source::kInitial:
      message.set_initial(true);
      break;
    case Source::kCheckpoint:
      message.set_checkpoint_step(origin.step);
      break;
    case Source::kReplicas:
      *message.mutable_replicas() = origin.replicas;
      break;
    case Source::kLive:
      message.mutable_held()->set_generation(generations.held()->number);
      message.mutable_held()->set_plan_json(generations.held()->plan.plan_json);
      for (const std::string& name : origin.holders) {
        message.mutable_held()->add_workers(name);
      }
      break;
  }
  const bool some_leave = next.participants.size() > next.plan.members.size();
  message.set_move_generation(some_leave ? transition.fence : transition.generation);
  for (const std::string& name : next.participants) {
    wire::Member& member = *message.add_move_members();
    member.set_name(name);
    member.set_address(roster.at(name).data_address);
  }
  message.set_save(CheckpointDue(policy, origin.step) && !saves.IsCommitted(origin.step));
  message.set_validate(ValidationDue(policy, origin.step) && !steps.ValidationOf(origin.step));
  return message;
}

}  // namespace heddle::elastic
