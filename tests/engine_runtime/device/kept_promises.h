/// \file
/// What a fake device has to show at the end of a training.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/device/fake_device.h"

namespace heddle::runtime::testing {

/// Fails the test unless `device`, a FakeDevice that has trained, saw no fault of its users, and
/// neither its memory nor a registration is left.
inline void ExpectKeptPromises(Device& device) {
  const auto& fake = dynamic_cast<FakeDevice&>(device);
  EXPECT_THAT(fake.violations(), ::testing::IsEmpty());
  EXPECT_EQ(fake.host_memory().registered(), 0);
  EXPECT_EQ(fake.memory_in_use(), 0);
}

}  // namespace heddle::runtime::testing
