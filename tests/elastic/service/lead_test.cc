// What a leader tells others of its address.
#include "elastic/service/lead.h"

#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

TEST(LeadTest, AnAddressOfAllInterfacesIsNoneForOthers) {
  EXPECT_EQ(AddressForOthers("10.0.0.1:4600"), "10.0.0.1:4600");
  EXPECT_EQ(AddressForOthers("[fd00::7]:4600"), "[fd00::7]:4600");
  EXPECT_EQ(AddressForOthers("0.0.0.0:4600"), "");
  EXPECT_EQ(AddressForOthers("[::]:4600"), "");
  EXPECT_EQ(AddressForOthers(":::4600"), "");
}

}  // namespace
}  // namespace heddle::elastic
