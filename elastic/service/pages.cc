#include "elastic/service/pages.h"

#include "metrics/dashboard/status_page.h"
#include "metrics/service_discovery.h"

namespace heddle::elastic {

metrics::HttpReply PageReply() {
  return {.status = 200,
          .content_type = "text/html; charset=utf-8",
          .body = std::string(metrics::StatusPage())};
}

metrics::HttpReply TargetsReply(const std::string& coordinator_metrics,
                                const std::vector<ListWorkers::Entry>& workers) {
  std::vector<metrics::ScrapeTarget> targets = {
      {.address = coordinator_metrics, .labels = {{"worker", "coordinator"}}}};
  for (const ListWorkers::Entry& worker : workers) {
    targets.push_back({.address = worker.metrics_address, .labels = {{"worker", worker.name}}});
  }
  return {.status = 200,
          .content_type = "application/json",
          .body = metrics::ServiceDiscoveryJson(targets)};
}

}  // namespace heddle::elastic
