#include "elastic/service/inspect/limits_in_force.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "elastic/protocol/service_limits.h"
#include "elastic/service/job_policy.h"

namespace heddle::elastic {
namespace {

std::string TextOf(const Limit& limit) {
  return fmt::format("{:.4g}{}{}", limit.value, limit.unit.empty() ? "" : " ", limit.unit);
}

}  // namespace

std::vector<Limit> LimitsInForce(const job::JobConfig& job) {
  std::vector<Limit> limits = LimitsOf(PolicyOf(job));
  const bool is_default = job.elastic.operation_timeout == job::kMoveLeases * job.elastic.lease;
  limits.push_back({"operation_timeout", Seconds(job.elastic.operation_timeout), "s",
                    is_default ? fmt::format("lease × {}", job::kMoveLeases)
                               : std::string("elastic.operation_timeout"),
                    "a transfer between workers"});
  for (const ServiceLimit& limit : kServiceLimits) {
    limits.push_back(
        {limit.name, Seconds(limit.value), "s",
         fmt::format("fixed: {:.3g} × the default lease of {:g} s",
                     Seconds(limit.value) / Seconds(kDefaultLease), Seconds(kDefaultLease)),
         limit.meaning});
  }
  return limits;
}

std::string LimitsTable(const std::vector<Limit>& limits) {
  size_t name = 0;
  size_t source = 0;
  for (const Limit& limit : limits) {
    name = std::max(name, limit.name.size());
    source = std::max(source, limit.source.size());
  }
  std::string text;
  for (const Limit& limit : limits) {
    text += fmt::format("{:<{}}  {:>8}  {:<{}}  {}\n", limit.name, name, TextOf(limit),
                        limit.source, source, limit.meaning);
  }
  return text;
}

std::string LimitsJson(const std::vector<Limit>& limits) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Limit& limit : limits) {
    nlohmann::ordered_json object;
    object["name"] = limit.name;
    object["value"] = limit.value;
    object["unit"] = limit.unit;
    object["source"] = limit.source;
    object["meaning"] = limit.meaning;
    list.push_back(std::move(object));
  }
  return list.dump(2);
}

}  // namespace heddle::elastic
