// Parsing of sysfs against trees made by hand, with what real kernels say.
#include "comm/links/discovery.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "tests/comm/sys.h"

namespace heddle::comm {
namespace {

std::map<std::string, NetworkInterface> ByName(const Sys& sys) {
  std::map<std::string, NetworkInterface> all;
  for (NetworkInterface& interface : ReadInterfaces(sys.root())) {
    all[interface.name] = interface;
  }
  return all;
}

TEST(DiscoveryTest, AMachineWithNoSysfsHasNothing) {
  EXPECT_TRUE(ReadInterfaces("/nowhere").empty());
}

TEST(DiscoveryTest, SpeedsThatAreNoneAreUnknown) {
  Sys sys;
  sys.Interface("eth0", {{"speed", "10000"}});
  sys.Interface("eth1", {{"speed", "-1"}});
  sys.Interface("eth2", {{"speed", "4294967295"}});
  sys.Interface("eth3", {{"speed", "fast"}});
  sys.Interface("eth4", {});  // No such file.
  sys.Interface("eth5", {});
  sys.Folder("class/net/eth5/speed");  // Reading fails, as it does with EINVAL.
  const auto all = ByName(sys);
  EXPECT_EQ(all.at("eth0").bytes_per_second, 1.25e9);
  for (const char* name : {"eth1", "eth2", "eth3", "eth4", "eth5"}) {
    EXPECT_EQ(all.at(name).bytes_per_second, 0) << name;
  }
}

TEST(DiscoveryTest, EachInterfaceIsKnownForWhatItIs) {
  Sys sys;
  sys.Put("class/net/bonding_masters", "bond0");
  sys.Interface("lo", {{"type", "772"}, {"operstate", "unknown"}, {"mtu", "65536"}});
  sys.Interface("eno1", {{"speed", "25000"}, {"mtu", "9000"}});
  sys.Device("eno1", "mlx5_core", "1");
  sys.Interface("ib0", {{"type", "32"}, {"mtu", "2044"}});
  sys.Device("ib0", "mlx5_core", "-1");
  sys.Interface("wlp2s0", {{"operstate", "down"}});
  sys.Device("wlp2s0", "iwlwifi", "-1");
  sys.Folder("class/net/wlp2s0/wireless");
  sys.Interface("bond0", {{"uevent", "DEVTYPE=bond\nINTERFACE=bond0"}});
  sys.Link("class/net/bond0/lower_eno1", "../eno1");
  sys.Interface("bond0.7", {{"uevent", "DEVTYPE=vlan\nINTERFACE=bond0.7"}});
  sys.Link("class/net/bond0.7/lower_bond0", "../bond0");
  sys.Interface("br0", {{"uevent", "DEVTYPE=bridge\nINTERFACE=br0"}});
  sys.Folder("class/net/br0/bridge");
  sys.Link("class/net/br0/brif/eno1", "../../eno1/brport");
  sys.Interface("docker0", {{"uevent", "DEVTYPE=bridge\nINTERFACE=docker0"}});
  sys.Link("class/net/docker0/brif/veth12ab", "../../veth12ab/brport");
  sys.Interface("veth12ab", {{"ifindex", "9"}, {"iflink", "8"}, {"speed", "10000"}});
  sys.Interface("tun0", {{"type", "65534"}, {"tun_flags", "0x1001"}});
  // Two that stand on each other: nonsense, but no reason to hang.
  sys.Interface("loop0", {});
  sys.Interface("loop1", {});
  sys.Link("class/net/loop0/lower_loop1", "../loop1");
  sys.Link("class/net/loop1/lower_loop0", "../loop0");

  const auto all = ByName(sys);
  EXPECT_EQ(all.size(), 12u);
  const auto is = [&](const std::string& name, InterfaceKind kind, const std::string& medium) {
    ASSERT_TRUE(all.contains(name)) << name;
    EXPECT_EQ(all.at(name).kind, kind) << name;
    EXPECT_EQ(all.at(name).medium, medium) << name;
  };
  is("lo", InterfaceKind::kLoopback, "loopback");
  is("eno1", InterfaceKind::kPhysical, "ethernet");
  is("ib0", InterfaceKind::kPhysical, "infiniband");
  is("wlp2s0", InterfaceKind::kPhysical, "wireless");
  is("bond0", InterfaceKind::kPhysical, "bond");
  is("bond0.7", InterfaceKind::kPhysical, "vlan");
  is("br0", InterfaceKind::kPhysical, "bridge");
  is("docker0", InterfaceKind::kContainer, "bridge");
  is("veth12ab", InterfaceKind::kVirtual, "veth");
  is("tun0", InterfaceKind::kVirtual, "tunnel");
  is("loop0", InterfaceKind::kVirtual, "other");
  EXPECT_EQ(all.at("eno1").driver, "mlx5_core");
  EXPECT_EQ(all.at("eno1").numa_node, 1);
  EXPECT_EQ(all.at("eno1").mtu_bytes, 9000);
  EXPECT_EQ(all.at("ib0").numa_node, -1);
  EXPECT_TRUE(all.at("lo").up);
  EXPECT_FALSE(all.at("wlp2s0").up);
}

NetworkInterface Made(const std::string& name,
                      InterfaceKind kind,
                      double bytes_per_second,
                      std::vector<std::string> ips = {"10.0.0.1"}) {
  NetworkInterface interface;
  interface.name = name;
  interface.kind = kind;
  interface.up = true;
  interface.bytes_per_second = bytes_per_second;
  interface.ips = std::move(ips);
  return interface;
}

std::string Chosen(std::vector<NetworkInterface> interfaces) {
  for (const InterfaceVerdict& verdict : JudgeInterfaces(std::move(interfaces))) {
    EXPECT_FALSE(verdict.reason.empty()) << verdict.interface.name;
    if (verdict.chosen) {
      EXPECT_TRUE(verdict.usable);
      return verdict.interface.name;
    }
  }
  return "";
}

TEST(DiscoveryTest, TheFastestPhysicalInterfaceIsChosen) {
  const auto lo = Made("lo", InterfaceKind::kLoopback, 0, {"127.0.0.1"});
  const auto docker = Made("docker0", InterfaceKind::kContainer, 0, {"172.17.0.1"});
  const auto veth = Made("veth1", InterfaceKind::kVirtual, 1.25e9);
  const auto slow = Made("eth0", InterfaceKind::kPhysical, 0.125e9);
  const auto fast = Made("eth1", InterfaceKind::kPhysical, 12.5e9);
  const auto unknown = Made("ens3", InterfaceKind::kPhysical, 0);
  EXPECT_EQ(Chosen({}), "");
  EXPECT_EQ(Chosen({lo, docker}), "");
  EXPECT_EQ(Chosen({lo, docker, veth}), "veth1");  // Inside a container it is the way out.
  EXPECT_EQ(Chosen({lo, docker, veth, unknown}), "ens3");
  EXPECT_EQ(Chosen({unknown, slow, fast, veth, docker, lo}), "eth1");
  auto down = fast;
  down.up = false;
  EXPECT_EQ(Chosen({slow, down}), "eth0");
  auto bare = fast;
  bare.ips.clear();
  EXPECT_EQ(Chosen({slow, bare}), "eth0");
}

TEST(DiscoveryTest, ThisMachineHasALoopbackThatIsNotChosen) {
  bool seen = false;
  for (const InterfaceVerdict& verdict : JudgeInterfaces(FindInterfaces())) {
    if (verdict.interface.kind == InterfaceKind::kLoopback) {
      seen = true;
      EXPECT_FALSE(verdict.usable);
      EXPECT_NE(std::find(verdict.interface.ips.begin(), verdict.interface.ips.end(), "127.0.0.1"),
                verdict.interface.ips.end());
    }
  }
  EXPECT_TRUE(seen);
}

TEST(DiscoveryTest, AnAddressIsOfItsInterfacesNetwork) {
  EXPECT_EQ(NetworkOf("127.0.0.1"), "127.0.0.0-8");
  EXPECT_EQ(NetworkOf("192.0.2.1"), "");
  EXPECT_EQ(NetworkOf(""), "");
}

TEST(DiscoveryTest, TheListenerIsWhereTheCoordinatorCanBeReachedFrom) {
  EXPECT_EQ(*FindBindAddress("", "127.0.0.1:4600"), "127.0.0.1");
  EXPECT_EQ(*FindBindAddress("", "localhost:4600"), "127.0.0.1");
  EXPECT_EQ(*FindBindAddress("10.9.8.7", "127.0.0.1:4600"), "10.9.8.7");
  EXPECT_EQ(*FindBindAddress("fd00::7", ""), "fd00::7");
  EXPECT_EQ(*FindBindAddress("lo", ""), "127.0.0.1");
  EXPECT_EQ(FindBindAddress("eth.invalid", "").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FindBindAddress("", "nowhere").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FindBindAddress("", "host.invalid:1").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::comm
