#include "metrics/service_discovery.h"

#include <vector>

#include <gtest/gtest.h>

namespace heddle::metrics {
namespace {

TEST(ServiceDiscoveryTest, WritesWhatPrometheusReads) {
  const std::vector<ScrapeTarget> targets = {
      {.address = "10.0.0.1:9400", .labels = {{"worker", "w\"0"}}}, {.address = "[::1]:9401"}};
  EXPECT_EQ(
      ServiceDiscoveryJson(targets),
      R"([{"targets":["10.0.0.1:9400"],"labels":{"worker":"w\"0"}},{"targets":["[::1]:9401"],"labels":{}}])");
  EXPECT_EQ(ServiceDiscoveryJson({}), "[]");
}

TEST(ServiceDiscoveryTest, BytesThatAreNoTextDoNoHarm) {
  const std::vector<ScrapeTarget> targets = {{.address = "a\xff:1"}};
  EXPECT_EQ(ServiceDiscoveryJson(targets), "[{\"targets\":[\"a\xEF\xBF\xBD:1\"],\"labels\":{}}]");
}

}  // namespace
}  // namespace heddle::metrics
