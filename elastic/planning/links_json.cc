#include "elastic/planning/links_json.h"

#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/format/strict_json.h"
#include "elastic/planning/measurement.h"

namespace heddle::elastic {
namespace {

constexpr int kMaxDepth = 8;  ///< Twice what it needs; what is deep would end the stack.

wire::Links LinksOf(const nlohmann::json& json) {
  wire::Links links;
  for (const nlohmann::json& place : json.at("places")) {
    links.add_places(place.get<int32_t>());
  }
  for (const nlohmann::json& entry : json.at("pairs")) {
    wire::Links::Pair& pair = *links.add_pairs();
    pair.set_a(entry.at("a").get<int32_t>());
    pair.set_b(entry.at("b").get<int32_t>());
    for (const nlohmann::json& each : entry.at("transports")) {
      wire::Links::Transport& transport = *pair.add_transports();
      transport.set_name(each.at("name").get<std::string>());
      transport.set_latency_seconds(each.at("latency_seconds").get<double>());
      transport.set_bytes_per_second(each.at("bytes_per_second").get<double>());
      transport.set_back_latency_seconds(each.at("back_latency_seconds").get<double>());
      transport.set_back_bytes_per_second(each.at("back_bytes_per_second").get<double>());
    }
  }
  return links;
}

}  // namespace

std::string LinksToJson(const wire::Links& links) {
  nlohmann::json pairs = nlohmann::json::array();
  for (const wire::Links::Pair& pair : links.pairs()) {
    nlohmann::json transports = nlohmann::json::array();
    for (const wire::Links::Transport& transport : pair.transports()) {
      transports.push_back({{"name", transport.name()},
                            {"latency_seconds", transport.latency_seconds()},
                            {"bytes_per_second", transport.bytes_per_second()},
                            {"back_latency_seconds", transport.back_latency_seconds()},
                            {"back_bytes_per_second", transport.back_bytes_per_second()}});
    }
    pairs.push_back({{"a", pair.a()}, {"b", pair.b()}, {"transports", std::move(transports)}});
  }
  const nlohmann::json json = {
      {"places", std::vector<int>(links.places().begin(), links.places().end())},
      {"pairs", std::move(pairs)}};
  return json.dump();
}

Result<wire::Links> LinksFromJson(std::string_view json, int workers) {
  const Result<nlohmann::json> read = checkpoint::ParseStrictJson(json, kMaxDepth);
  if (!read.ok()) {
    return InvalidArgumentError("links: {}", read.status().message());
  }
  try {
    wire::Links links = LinksOf(*read);
    HEDDLE_RETURN_IF_ERROR(MeasuredLinksFrom(links, workers).status());
    return links;
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgumentError("links: {}", error.what());
  }
}

}  // namespace heddle::elastic
