// Which RDMA port a worker uses, and which ports this machine has.
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/verbs_ports.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

RdmaPort Port(const std::string& device, const std::string& ip, double gigabits) {
  RdmaPort port;
  port.device = device;
  port.ip = ip;
  port.active = true;
  port.gid_index = 3;
  port.bytes_per_second = gigabits * 1e9 / 8;
  return port;
}

TEST(ChooseRdmaPortTest, NameThenAddressThenSpeedDecide) {
  std::vector<RdmaPort> ports{Port("slow", "10.0.0.1", 25), Port("fast", "10.0.1.1", 100),
                              Port("down", "10.0.2.1", 400), Port("bare", "", 400)};
  ports[2].active = false;
  ports[3].gid_index = -1;
  EXPECT_EQ(ChooseRdmaPort(ports, "", "192.168.0.1")->device, "fast");
  EXPECT_EQ(ChooseRdmaPort(ports, "", "10.0.0.1")->device, "slow");
  EXPECT_EQ(ChooseRdmaPort(ports, "slow", "10.0.1.1")->device, "slow");
  EXPECT_FALSE(ChooseRdmaPort(ports, "down", "10.0.2.1").has_value());
  EXPECT_FALSE(ChooseRdmaPort(ports, "bare", "10.0.2.1").has_value());
  EXPECT_FALSE(ChooseRdmaPort(ports, "other", "10.0.1.1").has_value());
  EXPECT_FALSE(ChooseRdmaPort({}, "", "10.0.1.1").has_value());
}

TEST(FindRdmaPortsTest, EveryPortIsWholeOrUnusable) {
  std::set<std::pair<std::string, int>> seen;
  for (const RdmaPort& port : FindRdmaPorts()) {
    EXPECT_TRUE(seen.emplace(port.device, port.port).second);
    EXPECT_GE(port.port, 1);
    EXPECT_GE(port.mtu_bytes, 256);
    if (port.usable() && port.kind != RdmaKind::kInfiniBand) {
      EXPECT_FALSE(port.ip.empty()) << port.device;
      EXPECT_FALSE(port.net_device.empty()) << port.device;
      EXPECT_NE(port.gid, RdmaGid{}) << port.device;
    }
  }
}

/// In a guest of scripts/rdma-vm.
TEST(FindRdmaPortsTest, FindsTheDeviceOfTheVerbsTests) {
  if (RdmaDevice().empty()) {
    GTEST_SKIP() << "HEDDLE_TEST_RDMA names no device";
  }
  const auto port = ChooseRdmaPort(FindRdmaPorts(), RdmaDevice(), "");
  ASSERT_TRUE(port.has_value());
  EXPECT_EQ(port->ip, std::getenv("HEDDLE_ADDRESS"));
  EXPECT_EQ(port->net_device, "eth0");
  EXPECT_EQ(port->kind, RdmaDevice().starts_with("siw") ? RdmaKind::kIwarp : RdmaKind::kRoce);
}

}  // namespace
}  // namespace heddle::comm
