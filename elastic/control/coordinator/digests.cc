// Digests that members report of the state that they train on.
#include "elastic/control/coordinator/coordinator_state.h"
#include "elastic/control/transition/certificate.h"

namespace heddle::elastic {

// The job continues from the members that agree; without a majority, from what was saved when all
// agreed.
void Coordinator::State::OnStateDigests(const std::string& name,
                                        const wire::StateDigests& message,
                                        Time now,
                                        Outbox& out) {
  const auto& transition = transitions_.current();
  if (!IsRunning() || !Counts(name, message.generation()) ||
      (transition && transition->kind == Transition::Kind::kRecover)) {
    return;
  }
  const DurableGeneration& held = *generations_.held();
  const auto found = agreement_.Take(name, message.certificate(), held);
  if (!found) {
    return;
  }
  SourceOption origin{.source = Source::kLive, .step = message.certificate().step()};
  for (const auto& [member, incarnation] : held.members) {
    origin.holders.push_back(member);
  }
  TransitionContext context = MakeContext(now, out);
  const auto losses = RefuseDisagreeing(*found, origin, held.number, context);
  losses.empty() ? Recover(Cause::kDisagreement, now, out) : Apply({.losses = losses}, now, out);
}

void Coordinator::State::RestoreDisagreement(Time now) {
  const auto& held = generations_.held();
  if (held && sources_.refusals().Disagreed(held->number)) {
    Outbox nobody([this, now] { return MakeDurableState(now); });  // Its actions are dropped.
    sources_.VoidAfter(agreement_.step());
    saves_.VoidAfter(agreement_.step(), held->number, nobody);
  }
}

}  // namespace heddle::elastic
