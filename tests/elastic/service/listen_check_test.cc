// Where anybody may be let in.
#include "elastic/service/listen_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

TEST(ListenCheckTest, LoopbackNeedsNothing) {
  for (const char* address :
       {"127.0.0.1:0", "127.3.2.1:4600", "[::1]:4600", "[::ffff:127.0.0.1]:1"}) {
    EXPECT_TRUE(CheckIsGuarded("--listen", address, false, "").ok()) << address;
  }
}

TEST(ListenCheckTest, BeyondItSomethingMust) {
  for (const char* address : {"0.0.0.0:4600", "10.0.0.1:0", "[::]:1", "[fe80::1]:1", "128.0.0.1:1",
                              "[::ffff:10.0.0.1]:1", "126.0.0.1:1"}) {
    const Status status = CheckIsGuarded("--listen", address, false, "give --certs DIR");
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(status.message(), HasSubstr(address));
    EXPECT_THAT(status.message(), HasSubstr("--certs DIR"));
    EXPECT_THAT(status.message(), HasSubstr("--insecure"));
    EXPECT_TRUE(CheckIsGuarded("--listen", address, true, "").ok()) << address;
  }
  EXPECT_FALSE(CheckIsGuarded("--listen", "nowhere", true, "").ok());
}

}  // namespace
}  // namespace heddle::elastic
