#include "elastic/service/pages.h"

#include <utility>

#include "elastic/grpc/client.h"
#include "elastic/service/reachable.h"
#include "metrics/dashboard/status_page.h"
#include "metrics/service_discovery.h"

namespace heddle::elastic {
namespace {

using metrics::HttpReply;
using metrics::PageRequest;

// The page loads everything else itself.
HttpReply PageReply() {
  return {.status = 200,
          .content_type = "text/html; charset=utf-8",
          .body = std::string(metrics::StatusPage())};
}

HttpReply StatusReply(const PageSources& sources) {
  CoordinatorServer* const server = sources.server();
  if (server == nullptr) {
    return {.status = 503, .body = "starting\n"};
  }
  return {
      .status = 200, .content_type = "application/json", .body = StatusToJson(server->StatusNow())};
}

// The coordinator's target is the address by which this request reached it, if it listens at a
// wildcard address.
HttpReply TargetsReply(const PageSources& sources, const PageRequest& request) {
  const std::string listens = sources.metrics_address();
  const std::string own = ReachableAddress(listens);
  std::vector<metrics::ScrapeTarget> targets = {
      {.address = own == listens || request.reached.empty() ? own : request.reached,
       .labels = {{"worker", "coordinator"}}}};
  for (const ListWorkers::Entry& worker : sources.workers()) {
    targets.push_back({.address = worker.metrics_address, .labels = {{"worker", worker.name}}});
  }
  return {.status = 200,
          .content_type = "application/json",
          .body = metrics::ServiceDiscoveryJson(targets)};
}

// OK if the coordinator serves workers and command lines.
Status Readiness(const PageSources& sources) {
  const CoordinatorServer* const server = sources.server();
  if (server == nullptr) {
    return UnavailableError("starting");
  }
  HEDDLE_RETURN_IF_ERROR(server->Health());
  return sources.owned();
}

}  // namespace

HttpReply HealthReply(const Status& status) {
  return status.ok() ? HttpReply{.body = "ok\n"}
                     : HttpReply{.status = 503, .body = status.message() + "\n"};
}

std::map<std::string, metrics::HttpHandler> CoordinatorPages(PageSources sources) {
  const auto shared = std::make_shared<const PageSources>(std::move(sources));
  return {{"/", [](const PageRequest&) { return PageReply(); }},
          {"/status", [shared](const PageRequest&) { return StatusReply(*shared); }},
          {"/sd", [shared](const PageRequest& request) { return TargetsReply(*shared, request); }},
          {"/healthz", [](const PageRequest&) { return HealthReply({}); }},
          {"/readyz", [shared](const PageRequest&) { return HealthReply(Readiness(*shared)); }}};
}

}  // namespace heddle::elastic
