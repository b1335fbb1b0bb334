// What a connection's socket is set to, as the kernel says it.
#include "comm/transport/ip_socket.h"

#include <gtest/gtest.h>
#include <linux/pkt_sched.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/system/unique_fd.h"
#include "comm/transport/tcp/tcp_setup.h"

namespace heddle::comm {
namespace {

int OptionOf(const UniqueFd& socket, int level, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  EXPECT_EQ(::getsockopt(socket.get(), level, name, &value, &size), 0);
  return value;
}

TEST(IpSocketTest, AConnectionHasNoDelaysAndLittleUnsent) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  TuneTcp(socket.get(), TrafficClass::kBulk);
  EXPECT_NE(OptionOf(socket, IPPROTO_TCP, TCP_NODELAY), 0);
  const int unsent = OptionOf(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT);
  EXPECT_GT(unsent, 0);
  EXPECT_LT(unsent, 1 << 20) << "an urgent frame is never behind megabytes of bulk";
}

TEST(IpSocketTest, AHostThatVanishesIsNoticedWithinFiveSeconds) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  TuneTcp(socket.get(), TrafficClass::kBulk);
  EXPECT_NE(OptionOf(socket, SOL_SOCKET, SO_KEEPALIVE), 0);
  EXPECT_LE(
      OptionOf(socket, IPPROTO_TCP, TCP_KEEPIDLE) +
          OptionOf(socket, IPPROTO_TCP, TCP_KEEPINTVL) * OptionOf(socket, IPPROTO_TCP, TCP_KEEPCNT),
      5);
  EXPECT_EQ(OptionOf(socket, IPPROTO_TCP, TCP_USER_TIMEOUT), 5000) << "milliseconds";
  WaitForReader(socket.get());
  EXPECT_GT(OptionOf(socket, IPPROTO_TCP, TCP_USER_TIMEOUT), 5000)
      << "a reader that takes nothing is there";
}

TEST(IpSocketTest, OnlyUrgentTrafficPassesTheOther) {
  for (const TrafficClass traffic_class : kEachTrafficClass) {
    const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    TuneTcp(socket.get(), traffic_class);
    EXPECT_EQ(OptionOf(socket, SOL_SOCKET, SO_PRIORITY),
              traffic_class == TrafficClass::kUrgent ? TC_PRIO_INTERACTIVE : TC_PRIO_BESTEFFORT);
  }
}

// Addresses for documentation, which no interface has, and loopback's.
TEST(TcpStreamsForTest, AnAddressOfNoNetworkDeviceHasOne) {
  for (const char* ip : {"192.0.2.1", "2001:db8::1", "127.0.0.1", "::1", ""}) {
    EXPECT_EQ(TcpStreamsFor(ip), 1) << ip;
  }
}

}  // namespace
}  // namespace heddle::comm
