/// \file
/// What the coordinator's HTTP port answers beside metrics.
#pragma once

#include <string>
#include <vector>

#include "elastic/control/actions.h"
#include "metrics/exposition/exposer.h"

namespace heddle::elastic {

/// The status page, which asks for everything else by itself.
metrics::HttpReply PageReply();

/// The targets that Prometheus finds by HTTP: the coordinator, and every worker.
metrics::HttpReply TargetsReply(const std::string& coordinator_metrics,
                                const std::vector<ListWorkers::Entry>& workers);

}  // namespace heddle::elastic
