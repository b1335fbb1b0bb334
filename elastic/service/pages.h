/// \file
/// The pages of the coordinator's HTTP port beside its metrics.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "elastic/control/actions.h"
#include "elastic/grpc/server.h"
#include "metrics/exposition/exposer.h"

namespace heddle::elastic {

/// What the pages show. The functions are called from any thread.
struct PageSources {
  std::function<CoordinatorServer*()> server;  ///< Returns null while the server starts.
  std::function<Status()> owned;               ///< As Service::Owned.
  std::function<std::vector<ListWorkers::Entry>()> workers;
  std::function<std::string()> metrics_address;  ///< HOST:PORT at which the pages are served.
};

/// The handlers by path: the status page (/), its JSON (/status), the targets for Prometheus's HTTP
/// service discovery, which are the coordinator and every worker (/sd), and the pages for liveness
/// and readiness probes (/healthz, /readyz).
std::map<std::string, metrics::HttpHandler> CoordinatorPages(PageSources sources);

/// The reply to a probe: 200 for OK, otherwise 503 with the error's message.
metrics::HttpReply HealthReply(const Status& status);

}  // namespace heddle::elastic
