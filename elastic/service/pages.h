/// \file
/// What the coordinator's HTTP port answers beside metrics.
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

/// Where the pages have it from. Called from any thread.
struct PageSources {
  std::function<CoordinatorServer*()> server;  ///< Null: it starts.
  std::function<Status()> owned;               ///< Whether the state is this coordinator's.
  std::function<std::vector<ListWorkers::Entry>()> workers;
  std::function<std::string()> metrics_address;  ///< That the pages are served at.
};

/// The status page, its JSON, the targets that Prometheus finds by HTTP (the coordinator and every
/// worker), and the pages for probes; by path.
std::map<std::string, metrics::HttpHandler> CoordinatorPages(PageSources sources);

/// What probes are told: 200, or 503 with the reason.
metrics::HttpReply HealthReply(const Status& status);

}  // namespace heddle::elastic
