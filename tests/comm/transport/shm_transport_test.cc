// Descriptors on the local socket of a pair that shares memory.
#include <algorithm>
#include <memory>
#include <utility>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/system/unique_fd.h"
#include "comm/transport/registry.h"
#include "comm/transport/shared_memory.h"
#include "comm/transport/transport.h"

namespace heddle::comm {
namespace {

using testing::HasSubstr;

class ShmTransportTest : public testing::Test {
 protected:
  void SetUp() override {
    auto transport = OpenTransport("shm", {});
    ASSERT_TRUE(transport.ok()) << transport.status().ToString();
    transport_ = *std::move(transport);
    auto dialled = transport_->Dial({.to = transport_->address()});
    ASSERT_TRUE(dialled.ok()) << dialled.status().ToString();
    const int listener = transport_->listeners().front().socket;
    pollfd waiting{.fd = listener, .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&waiting, 1, 5000), 1);
    UniqueFd accepted(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK));
    ASSERT_TRUE(accepted.valid());
    ours_ = Finish(*std::move(dialled), true);
    theirs_ = Finish(std::move(accepted), false);
    auto memory = MakeSharedMemory(4096);
    ASSERT_TRUE(memory.ok());
    memory_ = *std::move(memory);
  }
  std::unique_ptr<Connection> Finish(UniqueFd socket, bool dialled) {
    auto connection =
        transport_
            ->Begin(std::move(socket), {.traffic_class = TrafficClass::kUrgent, .dialled = dialled})
            ->Advance();
    EXPECT_TRUE(connection.ok()) << connection.status().ToString();
    return connection.ok() ? *std::move(connection) : nullptr;
  }
  Status Send(uint64_t id) { return ours_->info().descriptors->Send(id, memory_.get()); }

  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Connection> ours_;
  std::unique_ptr<Connection> theirs_;
  UniqueFd memory_;
};

TEST_F(ShmTransportTest, AFullQueueIsNoLoss) {
  Status status;
  for (uint64_t id = 1; status.ok() && id < 100'000; ++id) {
    status = Send(id);
  }
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("ulimit -n"));
  theirs_ = nullptr;
  status = Send(1);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
}

// Two groups offer the same memory, and a third takes its own first.
TEST_F(ShmTransportTest, WhatIsHandedOverTwiceComesTwice) {
  for (const uint64_t id : {1U, 1U, 2U}) {
    ASSERT_TRUE(Send(id).ok());
  }
  for (const uint64_t id : {2U, 1U, 1U}) {
    const auto taken = theirs_->info().descriptors->Take(id);
    EXPECT_TRUE(taken.ok()) << id << ": " << taken.status().ToString();
  }
  EXPECT_EQ(theirs_->info().descriptors->Take(1).status().code(), StatusCode::kUnavailable);
}

TEST_F(ShmTransportTest, WhatNobodyTakesIsDropped) {
  constexpr uint64_t kLast = 1000;
  constexpr uint64_t kStep = 100;  // The socket holds a few hundred.
  for (uint64_t id = 1; id <= kLast; ++id) {
    ASSERT_TRUE(Send(id).ok());
    if (id % kStep == 0) {
      const auto taken = theirs_->info().descriptors->Take(id);
      ASSERT_TRUE(taken.ok()) << id << ": " << taken.status().ToString();
    }
  }
  EXPECT_TRUE(theirs_->info().descriptors->Take(kLast - 200).status().code() ==
              StatusCode::kUnavailable);
  EXPECT_TRUE(theirs_->info().descriptors->Take(kLast - 199).ok());
  EXPECT_EQ(theirs_->info().descriptors->Take(1).status().code(), StatusCode::kUnavailable);
}

TEST(CheckSharedMemoryTest, EachFaultIsSaid) {
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd in(ends[0]);
  const UniqueFd out(ends[1]);
  Status status = CheckSharedMemory(in.get(), 1).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("no memory"));

  const UniqueFd open(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open.get(), 4096), 0);
  status = CheckSharedMemory(open.get(), 1).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("not sealed"));

  const auto memory = MakeSharedMemory(4096);
  ASSERT_TRUE(memory.ok());
  status = CheckSharedMemory(memory->get(), 4097).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("4096 bytes where at least 4097"));
  const auto size = CheckSharedMemory(memory->get(), 4096);
  ASSERT_TRUE(size.ok());
  EXPECT_EQ(*size, 4096U);
}

}  // namespace
}  // namespace heddle::comm
