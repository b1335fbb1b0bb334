// Workers that are asked to leave, and those that stay after all.
#include <string>
#include <vector>

#include "elastic/control/coordinator/coordinator_state.h"

namespace heddle::elastic {
namespace {

wire::Stay MakeStay(const Worker& worker) {
  wire::Stay stay;
  stay.set_notice(worker.notices.withdrawn);
  return stay;
}

}  // namespace

void Coordinator::State::On(const DrainRequested& event, Time /*now*/, Outbox& out) {
  for (const auto& [name, worker] : roster_.workers()) {
    if (name == event.worker || worker.host == event.worker) {
      roster_.Drain(name, "drained");
    }
  }
  out.Persist();  // Durable before the requester is told that it will happen.
}

void Coordinator::State::On(const DrainCancelled& event, Time /*now*/, Outbox& out) {
  if (!suspension_.asked().empty()) {
    return;  // All leave with the run, and would be asked again.
  }
  std::vector<std::string> stay;
  for (const auto& [name, worker] : roster_.workers()) {
    if ((name == event.worker || worker.host == event.worker) && roster_.Stay(name, true)) {
      stay.push_back(name);
      out.Log("drain_cancelled", {{"worker", name}});
    }
  }
  out.Persist();  // Durable before the requester and the worker are told.
  const auto& transition = transitions_.current();
  if (!stay.empty() && transition && transition->kind == Transition::Kind::kChange &&
      (transition->In<Planning>() != nullptr || transition->In<Preparing>() != nullptr)) {
    transitions_.Drop(generations_);  // No worker has begun anything: all are considered again.
  }
  for (const std::string& name : stay) {
    if (transition || !generations_.IsMember(name)) {
      transitions_.Forget(name);  // A plan with it is looked for after the transition.
    }
    const Worker& worker = roster_.at(name);
    if (worker.notices.withdrawn > 0) {
      out.Tell(worker.connection, MakeStay(worker));
    }
  }
}

// A withdrawn notice may come again from a worker that has not yet heard that it stays.
void Coordinator::State::OnLeaving(const Worker& worker,
                                   const wire::Leaving& message,
                                   Time now,
                                   Outbox& out) {
  if (phase_ == JobPhase::kDone) {
    return;
  }
  if (message.at_once()) {
    return Lose({worker.name, message.reason(), false}, now, out);
  }
  if (worker.notices.withdrawn > 0 && message.notice() <= worker.notices.withdrawn) {
    return out.Tell(worker.connection, MakeStay(worker));
  }
  roster_.Drain(worker.name, message.reason(), /*noticed=*/true, message.notice());
}

}  // namespace heddle::elastic
