// Keeps the guarantee that a job demands: workers whose steps would void it are refused.
#include <optional>
#include <string>
#include <vector>

#include "elastic/control/coordinator/coordinator_state.h"

namespace heddle::elastic {

std::optional<wire::Refused> Coordinator::State::Unlike(const std::string& name,
                                                        const WorkerIdentity& worker,
                                                        Outbox& out) {
  const std::string why = lineage_.WhyRefused(name, worker.arithmetic, roster_, policy());
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
