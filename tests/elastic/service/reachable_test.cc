// The address that others are told.
#include "elastic/service/reachable.h"

#include <string>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/system/socket_address.h"
#include "base/system/unique_fd.h"
#include "elastic/service/pages.h"

namespace heddle::elastic {
namespace {

TEST(ReachableTest, AnAddressThatIsOneStays) {
  for (const char* const address :
       {"10.0.0.1:4600", "127.0.0.1:1", "[fd00::7]:4600", "lab.example:4600"}) {
    EXPECT_EQ(ReachableAddress(address), address);
  }
}

TEST(ReachableTest, AHostAndAPortMakeAnAddress) {
  for (const char* const address : {"10.0.0.1:4600", "[fd00::7]:4600", "[::]:0"}) {
    const auto parsed = ParseSocketAddress(address);
    ASSERT_TRUE(parsed.ok()) << address;
    EXPECT_EQ(HostAndPort(HostOf(*parsed), PortOf(*parsed)), address);
  }
}

TEST(ReachableTest, AllAddressesAreOneOfThisMachine) {
  for (const char* const address : {"0.0.0.0:0", "[::]:0", ":::0"}) {
    const std::string reachable = ReachableAddress(address);
    const auto parsed = ParseSocketAddress(reachable);
    ASSERT_TRUE(parsed.ok()) << address << ": " << reachable;
    EXPECT_EQ(reachable.find("0.0.0.0"), std::string::npos) << reachable;
    EXPECT_EQ(reachable.find("::]"), std::string::npos) << reachable;
    // Only an address of this machine can be bound to.
    const UniqueFd socket(::socket(parsed->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(
        ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&parsed->storage), parsed->length),
        0)
        << address << ": " << reachable;
  }
  EXPECT_TRUE(ReachableAddress("0.0.0.0:4712").ends_with(":4712"));
}

TEST(PagesTest, ProbesHearTheReason) {
  EXPECT_EQ(HealthReply({}).status, 200);
  EXPECT_EQ(HealthReply({}).body, "ok\n");
  const metrics::HttpReply reply = HealthReply(UnavailableError("its state cannot be stored"));
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.body, "its state cannot be stored\n");
}

}  // namespace
}  // namespace heddle::elastic
