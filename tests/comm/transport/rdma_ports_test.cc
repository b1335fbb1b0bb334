// Which RDMA port a worker uses, and which ports this machine has.
#include "comm/transport/verbs/rdma_ports.h"

#include <filesystem>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/cluster.h"
#include "tests/comm/sys.h"

namespace heddle::comm {
namespace {

RdmaPort Port(const std::string& device, const std::string& ip, double gigabits) {
  RdmaPort port;
  port.device = device;
  port.ip = ip;
  port.usable = true;
  port.bytes_per_second = gigabits * 1e9 / 8;
  return port;
}

std::vector<std::string> Names(const std::vector<RdmaPort>& ports) {
  std::vector<std::string> names;
  for (const RdmaPort& port : ports) {
    names.push_back(port.name());
  }
  return names;
}

TEST(ChooseRdmaPortsTest, AllThatCanBeUsedOrThoseThatAreNamed) {
  std::vector<RdmaPort> ports{Port("slow", "10.0.0.1", 25), Port("fast", "10.0.1.1", 100),
                              Port("down", "10.0.2.1", 400), Port("fast", "10.0.3.1", 100)};
  ports[2].usable = false;
  ports[3].port = 2;
  using testing::ElementsAre;
  using testing::IsEmpty;
  const auto chosen = [&](const std::string& devices) {
    return Names(ChooseRdmaPorts(ports, devices, "192.168.0.1"));
  };
  EXPECT_THAT(chosen(""), ElementsAre("slow/1", "fast/1", "fast/2"));
  EXPECT_THAT(chosen("fast"), ElementsAre("fast/1", "fast/2"));
  EXPECT_THAT(chosen("fast/2,slow"), ElementsAre("slow/1", "fast/2"));
  EXPECT_THAT(chosen("down"), IsEmpty());
  EXPECT_THAT(chosen("other,fas"), IsEmpty());
  EXPECT_THAT(ChooseRdmaPorts({}, "", "10.0.1.1"), IsEmpty());
  // One handle of librdmacm for all ports of an iWARP device.
  for (RdmaPort& port : ports) {
    port.kind = RdmaKind::kIwarp;
  }
  std::swap(ports[2], ports[3]);
  EXPECT_THAT(chosen(""), ElementsAre("slow/1", "fast/1"));
}

TEST(ChooseRdmaPortsTest, OfTooManyTheFastestAndTheOneOfTheAddress) {
  std::vector<RdmaPort> ports;
  for (int i = 0; i < 12; ++i) {
    ports.push_back(Port(fmt::format("d{:02}", i), fmt::format("10.0.{}.1", i), i));
  }
  EXPECT_THAT(
      Names(ChooseRdmaPorts(ports, "", "10.0.1.1")),
      testing::ElementsAre("d01/1", "d05/1", "d06/1", "d07/1", "d08/1", "d09/1", "d10/1", "d11/1"));
}

TEST(IsNearTest, AProcessorOfTheNode) {
  Sys sys;
  sys.Put("devices/system/node/node0/cpulist", "0-3,8,10-11");
  sys.Put("devices/system/node/node1/cpulist", "nonsense");
  const auto near = [&](int node, std::vector<int> processors) {
    return IsNear(sys.root(), node, processors);
  };
  EXPECT_TRUE(near(0, {3}));
  EXPECT_TRUE(near(0, {4, 8}));
  EXPECT_TRUE(near(0, {9, 11}));
  EXPECT_FALSE(near(0, {4, 9, 12}));
  EXPECT_TRUE(near(1, {4}));
  EXPECT_TRUE(near(-1, {4}));
}

// What real kernels say, in folders made by hand.
TEST(ReadRdmaPortsTest, PortsAreJudgedWithTheReason) {
  Sys sys;
  const auto put = [&](const std::string& device, const std::string& file,
                       const std::string& text) {
    sys.Put("class/infiniband/" + device + "/" + file, text);
  };
  const auto port = [&](const std::string& device, const std::string& type,
                        const std::string& layer, const std::string& state,
                        const std::string& rate) {
    put(device, "node_type", type);
    put(device, "ports/1/link_layer", layer);
    put(device, "ports/1/state", state);
    put(device, "ports/1/rate", rate);
    put(device, "ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000");
  };
  const auto interface = [&](const std::string& name, const std::string& mac) {
    sys.Put("class/net/" + name + "/address", mac);
  };
  port("ib_a", "1: CA", "InfiniBand", "4: ACTIVE", "200 Gb/sec (4X HDR)");
  put("ib_a", "ports/1/gids/0", "fe80:0000:0000:0000:0002:c903:0000:1491");
  put("ib_a", "device/numa_node", "1");
  interface("ib0", "00:00:10:29:fe:80");
  sys.Folder("class/net/ib0/device/infiniband/ib_a");
  port("roce_a", "1: CA", "Ethernet", "4: ACTIVE", "2.5 Gb/sec (1X SDR)");
  put("roce_a", "ports/1/gids/0", "fe80:0000:0000:0000:b6e9:b8ff:fe00:0001");
  put("roce_a", "ports/1/gid_attrs/types/0", "RoCE v2");
  put("roce_a", "ports/1/gids/2", "0000:0000:0000:0000:0000:ffff:0a00:0007");
  put("roce_a", "ports/1/gid_attrs/types/2", "IB/RoCE v1");
  put("roce_a", "ports/1/gids/10", "0000:0000:0000:0000:0000:ffff:0a00:0007");
  put("roce_a", "ports/1/gid_attrs/types/10", "RoCE v2");
  put("roce_a", "ports/1/gid_attrs/ndevs/10", "eth1");
  port("roce_b", "1: CA", "Ethernet", "4: ACTIVE", "25 Gb/sec (1X EDR)");
  put("roce_b", "ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:0a63:0001");  // Another's.
  put("roce_b", "ports/1/gid_attrs/types/0", "RoCE v2");
  port("roce_c", "1: CA", "Ethernet", "1: DOWN", "10 Gb/sec (4X SDR)");
  port("roce_d", "1: CA", "Ethernet", "4: ACTIVE", "10 Gb/sec (4X SDR)");
  put("roce_d", "ports/1/gids/0", "nonsense");
  port("siw_a", "4: RNIC", "Ethernet", "4: ACTIVE", "");
  put("siw_a", "ports/1/gids/0", "5254:0012:3456:0000:0000:0000:0000:0000");
  interface("eth2", "52:54:00:12:34:56");
  port("strange", "9: NEW", "Carrier pigeon", "4: ACTIVE", "a lot");
  port("usnic", "6: usNIC UDP", "Ethernet", "4: ACTIVE", "10 Gb/sec (4X SDR)");
  for (const char* device : {"ib_a", "roce_a", "siw_a"}) {
    sys.Put(std::string("class/infiniband_verbs/uverbs_") + device + "/ibdev", device);
  }
  sys.Put("class/infiniband_verbs/abi_version", "6");

  std::vector<NetworkInterface> interfaces(4);
  interfaces[0].name = "eth0";
  interfaces[0].ips = {"10.0.0.1"};
  interfaces[1].name = "eth1";
  interfaces[1].ips = {"10.0.0.7", "fd00::7"};
  interfaces[2].name = "eth2";
  interfaces[2].ips = {"10.0.0.8"};
  interfaces[3].name = "ib0";
  interfaces[3].ips = {"10.0.0.9"};
  std::map<std::string, RdmaPort> all;
  for (const RdmaPort& found : ReadRdmaPorts(sys.root(), interfaces)) {
    EXPECT_FALSE(found.reason.empty()) << found.device;
    all[found.device] = found;
  }
  ASSERT_EQ(all.size(), 8u);
  EXPECT_EQ(all["ib_a"].kind, RdmaKind::kInfiniBand);
  EXPECT_TRUE(all["ib_a"].usable) << all["ib_a"].reason;
  EXPECT_EQ(all["ib_a"].bytes_per_second, 25e9);
  EXPECT_EQ(all["ib_a"].numa_node, 1);
  EXPECT_EQ(all["ib_a"].gids.size(), 1u);
  EXPECT_EQ(all["ib_a"].gid_index, 0);
  EXPECT_EQ(all["ib_a"].ip, "10.0.0.9");
  EXPECT_EQ(all["roce_a"].kind, RdmaKind::kRoce);
  EXPECT_TRUE(all["roce_a"].usable) << all["roce_a"].reason;
  EXPECT_EQ(all["roce_a"].gids.back().index, 10);
  EXPECT_EQ(all["roce_a"].gids.back().net_device, "eth1");
  EXPECT_EQ(all["roce_a"].gid_index, 10);
  EXPECT_EQ(all["roce_a"].gid, all["roce_a"].gids.back().gid);
  EXPECT_EQ(all["roce_a"].ip, "10.0.0.7");
  EXPECT_EQ(all["roce_a"].net_device, "eth1");
  EXPECT_EQ(all["roce_a"].character_device, "uverbs_roce_a");
  EXPECT_FALSE(all["roce_b"].usable);
  EXPECT_THAT(all["roce_b"].reason, testing::HasSubstr("no GID of RoCE version 2"));
  EXPECT_FALSE(all["roce_c"].usable);
  EXPECT_THAT(all["roce_c"].reason, testing::HasSubstr("DOWN"));
  EXPECT_FALSE(all["roce_d"].usable);
  EXPECT_THAT(all["roce_d"].reason, testing::HasSubstr("no GID"));
  EXPECT_EQ(all["siw_a"].kind, RdmaKind::kIwarp);
  EXPECT_TRUE(all["siw_a"].usable) << all["siw_a"].reason;
  EXPECT_EQ(all["siw_a"].bytes_per_second, 0);
  EXPECT_EQ(all["siw_a"].ip, "10.0.0.8");
  EXPECT_FALSE(all["strange"].usable);
  EXPECT_EQ(all["usnic"].kind, RdmaKind::kUnknown);
  EXPECT_TRUE(ReadRdmaPorts("/nowhere", interfaces).empty());
  // Without the module that lets programs in.
  std::filesystem::remove_all(sys.root() + "/class/infiniband_verbs");
  for (const RdmaPort& found : ReadRdmaPorts(sys.root(), interfaces)) {
    EXPECT_FALSE(found.usable) << found.device;
  }
}

TEST(FindRdmaPortsTest, EveryPortIsWholeOrUnusable) {
  std::set<std::pair<std::string, int>> seen;
  for (const RdmaPort& port : FindRdmaPorts()) {
    EXPECT_TRUE(seen.emplace(port.device, port.port).second);
    EXPECT_GE(port.port, 1);
    EXPECT_FALSE(port.reason.empty());
    if (port.usable && port.kind != RdmaKind::kInfiniBand) {
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
  const auto ports = ChooseRdmaPorts(FindRdmaPorts(), RdmaDevice(), "");
  ASSERT_EQ(ports.size(), 1u) << FindRdmaPorts().front().reason;
  const RdmaPort* const port = &ports.front();
  EXPECT_EQ(NetworkOf(port->ip), "10.9.0.0-24");
  EXPECT_EQ(port->ip, std::getenv("HEDDLE_ADDRESS"));
  EXPECT_EQ(port->net_device, "eth0");
  EXPECT_EQ(port->kind, RdmaDevice().starts_with("siw") ? RdmaKind::kIwarp : RdmaKind::kRoce);
}

}  // namespace
}  // namespace heddle::comm
