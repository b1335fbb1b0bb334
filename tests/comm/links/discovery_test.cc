// Parsing of sysfs against trees made by hand, with what real kernels say.
#include "comm/links/discovery.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

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

// What each sign alone says, in the order in which they count.
TEST(DiscoveryTest, AMediumIsKnownByAnyOfItsSigns) {
  const std::vector<std::pair<std::string, std::function<void(Sys&, const std::string&)>>> signs = {
      {"bridge", [](Sys& sys, const std::string& at) { sys.Folder(at + "/bridge"); }},
      {"bridge",
       [](Sys& sys, const std::string& at) { sys.Put(at + "/uevent", "DEVTYPE=bridge"); }},
      {"bond", [](Sys& sys, const std::string& at) { sys.Folder(at + "/bonding"); }},
      {"bond", [](Sys& sys, const std::string& at) { sys.Put(at + "/uevent", "DEVTYPE=bond"); }},
      {"bond", [](Sys& sys, const std::string& at) { sys.Put(at + "/uevent", "DEVTYPE=team"); }},
      {"vlan", [](Sys& sys, const std::string& at) { sys.Put(at + "/uevent", "DEVTYPE=vlan"); }},
      {"wireless", [](Sys& sys, const std::string& at) { sys.Folder(at + "/wireless"); }},
      {"wireless", [](Sys& sys, const std::string& at) { sys.Folder(at + "/phy80211"); }},
      {"wireless",
       [](Sys& sys, const std::string& at) { sys.Put(at + "/uevent", "DEVTYPE=wlan"); }},
      {"tunnel", [](Sys& sys, const std::string& at) { sys.Put(at + "/tun_flags", "0x1"); }},
      {"infiniband", [](Sys& sys, const std::string& at) { sys.Put(at + "/type", "32"); }},
      {"ethernet", [](Sys& sys, const std::string& at) { sys.Folder(at + "/device"); }},
      {"veth", [](Sys& sys, const std::string& at) { sys.Put(at + "/iflink", "3"); }},
      {"loopback", [](Sys& sys, const std::string& at) { sys.Put(at + "/type", "772"); }},
      {"other", [](Sys&, const std::string&) {}},
      {"other", [](Sys& sys, const std::string& at) { sys.Put(at + "/uevent", "DEVTYPE=bonded"); }},
      // Of another hardware type a link to itself or a device says nothing.
      {"other",
       [](Sys& sys, const std::string& at) {
         sys.Put(at + "/type", "65534");
         sys.Put(at + "/iflink", "3");
         sys.Folder(at + "/device");
       }},
  };
  for (size_t i = 0; i < signs.size(); ++i) {
    Sys sys;
    sys.Interface("x0", {});
    signs[i].second(sys, "class/net/x0");
    EXPECT_EQ(ByName(sys).at("x0").medium, signs[i].first) << i;
  }
}

TEST(DiscoveryTest, EachNumberIsReadAndBounded) {
  Sys sys;
  sys.Interface("a", {{"operstate", "unknown"}, {"speed", "1"}, {"mtu", "9999999999"}});
  sys.Device("a", "driver_a", "99999999");
  sys.Interface("b", {{"operstate", "dormant"}, {"speed", "0"}, {"mtu", "-5"}});
  sys.Device("b", "driver_b", "-7");
  sys.Interface("c", {{"speed", "4294967294"}, {"mtu", "none"}});
  sys.Interface("d", {{"speed", "2500x"}});
  const auto all = ByName(sys);
  EXPECT_TRUE(all.at("a").up);
  EXPECT_FALSE(all.at("b").up);
  EXPECT_EQ(all.at("a").bytes_per_second, 125e3);
  EXPECT_EQ(all.at("b").bytes_per_second, 0);
  EXPECT_EQ(all.at("c").bytes_per_second, 4294967294 * 125e3);
  EXPECT_EQ(all.at("d").bytes_per_second, 0) << "not all of it is a number";
  EXPECT_EQ(all.at("a").mtu_bytes, std::numeric_limits<int>::max());
  EXPECT_EQ(all.at("b").mtu_bytes, 0);
  EXPECT_EQ(all.at("c").mtu_bytes, 0);
  EXPECT_EQ(all.at("a").numa_node, 1 << 20);
  EXPECT_EQ(all.at("b").numa_node, -1);
  EXPECT_EQ(all.at("c").numa_node, -1);
  EXPECT_EQ(all.at("a").driver, "driver_a");
  EXPECT_EQ(all.at("c").driver, "");
}

TEST(DiscoveryTest, KindsHaveNames) {
  EXPECT_EQ(InterfaceKindName(InterfaceKind::kPhysical), "physical");
  EXPECT_EQ(InterfaceKindName(InterfaceKind::kVirtual), "virtual");
  EXPECT_EQ(InterfaceKindName(InterfaceKind::kContainer), "container");
  EXPECT_EQ(InterfaceKindName(InterfaceKind::kLoopback), "loopback");
}

TEST(DiscoveryTest, EveryVerdictHasItsReasonAndItsPlace) {
  auto down = Made("eth2", InterfaceKind::kPhysical, 12.5e9);
  down.up = false;
  auto bare = Made("eth3", InterfaceKind::kPhysical, 12.5e9, {});
  auto fast = Made("eth1", InterfaceKind::kPhysical, 12.5e9);
  fast.medium = "ethernet";
  auto slow = Made("eth0", InterfaceKind::kPhysical, 0.125e9);
  slow.medium = "ethernet";
  auto unknown = Made("eth4", InterfaceKind::kPhysical, 0);
  unknown.medium = "ethernet";
  auto veth = Made("veth1", InterfaceKind::kVirtual, 10e9);
  veth.medium = "veth";
  const auto docker = Made("docker0", InterfaceKind::kContainer, 99e9);
  const auto lo = Made("lo", InterfaceKind::kLoopback, 0);
  const auto verdicts = JudgeInterfaces({lo, docker, veth, unknown, slow, bare, down, fast});
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"eth1", "physical ethernet, 100 Gbit/s"},
      {"eth0", "physical ethernet, 1 Gbit/s; eth1 is better"},
      {"eth4", "physical ethernet, speed unknown; eth1 is better"},
      {"veth1", "virtual veth, 80 Gbit/s; eth1 is better"},
      {"eth2", "down"},
      {"eth3", "no address (a link-local one does not count)"},
      {"docker0",
       "a bridge of this machine's containers or guests: other machines are not behind it"},
      {"lo", "loopback: only among workers of this machine"},
  };
  ASSERT_EQ(verdicts.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(verdicts[i].interface.name, expected[i].first) << i;
    EXPECT_EQ(verdicts[i].chosen, i == 0) << i;
    EXPECT_EQ(verdicts[i].usable, i < 4) << i;
    EXPECT_EQ(verdicts[i].reason, expected[i].second) << i;
  }
}

TEST(DiscoveryTest, WhatIsNoAddressIsSaidInItsOwnWords) {
  const auto message = [](const std::string& wanted, const std::string& coordinator) {
    const auto found = FindBindAddress(wanted, coordinator);
    EXPECT_EQ(found.status().code(), StatusCode::kInvalidArgument) << wanted << coordinator;
    return found.status().message();
  };
  EXPECT_NE(message("", ":4600").find("':4600' is not HOST:PORT"), std::string::npos);
  EXPECT_NE(message("", "nowhere").find("'nowhere' is not HOST:PORT"), std::string::npos);
  EXPECT_EQ(message("not an address", ""),
            "'not an address' is neither an address nor an interface of this machine");
  EXPECT_EQ(message("0.0.0.0", "127.0.0.1:4600").find("'0.0.0.0' is every address"), 0U);
  EXPECT_EQ(message("::", "127.0.0.1:4600").find("'::' is every address"), 0U);
  EXPECT_EQ(*FindBindAddress("", "[127.0.0.1]:4600"), "127.0.0.1") << "in brackets, too";
  EXPECT_EQ(*FindBindAddress("", "127.0.0.9:1"), "127.0.0.1") << "where the route begins";
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
