#include "metrics/service_discovery.h"

#include <nlohmann/json.hpp>

namespace heddle::metrics {

std::string ServiceDiscoveryJson(std::span<const ScrapeTarget> targets) {
  nlohmann::ordered_json groups = nlohmann::ordered_json::array();
  for (const ScrapeTarget& target : targets) {
    groups.push_back({{"targets", {target.address}}, {"labels", nlohmann::ordered_json::object()}});
    for (const auto& [name, value] : target.labels) {
      groups.back()["labels"][name] = value;
    }
  }
  // A host name may have any bytes, and JSON only UTF-8.
  return groups.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace heddle::metrics
