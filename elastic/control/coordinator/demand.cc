// Workers that come back or have waited, and the guarantee that a job demands: those whose steps
// would void it are refused.
#include <optional>
#include <string>
#include <vector>

#include "elastic/control/coordinator/coordinator_state.h"

namespace heddle::elastic {

std::optional<wire::Refused> Coordinator::State::Unlike(const std::string& name,
                                                        const WorkerIdentity& worker,
                                                        Outbox& out) {
  const bool computes_there = worker.arithmetic.empty() && job_.OnProcessor(name);
  const Arithmetic& own = computes_there ? worker.on_processor : worker.arithmetic;
  // One that does not know its device yet is judged when it does.
  const std::string why =
      own.empty() ? std::string() : lineage_.WhyRefused(name, own, roster_, policy());
  if (why.empty()) {
    return std::nullopt;
  }
  out.Log("worker_refused", {{"worker", name}, {"host", worker.host}, {"reason", why}});
  if (!generations_.held()) {
    refused_unlike_ = true;
    recoveries_.NoteLoss(name.empty() ? "a worker of " + worker.host : name, why);
  }
  wire::Refused refused;
  refused.set_reason(why);
  refused.set_permanent(true);
  return refused;
}

void Coordinator::State::OnReturn(ConnectionId connection,
                                  const wire::Hello& hello,
                                  Time now,
                                  Outbox& out) {
  const std::string name = hello.name();
  const Worker& worker = roster_.at(name);
  const bool judged = phase_ == JobPhase::kIdle || !worker.arithmetic.empty();
  const auto unlike = judged ? std::nullopt : Unlike(name, IdentityOf(hello), out);
  roster_.Return(connection, hello, now, out);
  if (phase_ == JobPhase::kIdle) {
    return;
  }
  if (unlike) {
    out.Tell(connection, *unlike);
    return Lose({name, unlike->reason()}, now, out);
  }
  WelcomeWorker(name, true, out);
  if (worker.profiling_until) {
    out.Tell(connection, wire::Profile());
  }
  links_.Resend(worker, roster_, policy().links, out);
  SendGoAgain(worker, out);  // Before any Stop, which counts only after Go.
  TransitionContext context = MakeContext(now, out);
  transitions_.Resend(worker, context);
  suspension_.Resend(worker, generations_, out);
}

void Coordinator::State::WelcomeWaiting(Outbox& out) {
  std::vector<std::string> names;
  for (const auto& [name, worker] : roster_.workers()) {
    names.push_back(name);
  }
  for (const std::string& name : names) {
    const Worker& worker = roster_.at(name);
    if (const auto refused = Unlike(name, worker, out)) {
      out.Tell(worker.connection, *refused);
      Dismiss(name, "", false, out);
    } else {
      WelcomeWorker(name, false, out);
    }
  }
}

}  // namespace heddle::elastic
