/// \file
/// A communicator whose only other member is played by a test, message by message.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "comm/endpoint/communicator_impl.h"
#include "comm/group/group.h"
#include "comm/stream/event_loop.h"
#include "tests/comm/message/wire.h"

namespace heddle::comm {

/// The generation of the communicator, which frames have to name.
inline constexpr uint32_t kPlayedGeneration = 7;
/// The time limit for what is expected to happen.
inline constexpr Duration kPatience = std::chrono::minutes(2);

/// Worker 0 of two, of which the test plays the other one.
class PlayedMemberTest : public ::testing::Test {
 protected:
  void SetUp() override {
    loop_ = *EventLoop::Create();
    GroupOptions options;
    options.generation = kPlayedGeneration;
    options.operation_timeout = kPatience;
    for (int rank = 0; rank < 2; ++rank) {
      options.members.push_back({"worker-" + std::to_string(rank), "heddle1;host=h"});
    }
    options.peers = {1};
    auto group = std::make_shared<Group>(loop_, std::move(options),
                                         std::make_shared<SharedRegions>(nullptr));
    for (const TrafficClass traffic_class : kEachTrafficClass) {
      ChannelOptions channel;
      channel.peer = 1;
      channel.traffic_class = traffic_class;
      channel.peer_name = "worker-1";
      channel.generation = kPlayedGeneration;
      channel.operation_timeout = kPatience;
      channel.outgoing = channel.incoming = bucket_;
      channel.sent_bytes = channel.received_bytes = &bytes_;
      channel.lost = &lost_;
      channel.open = open_;
      group->Attach(std::make_unique<WireEnd>(
                        traffic_class == TrafficClass::kUrgent ? urgent_ : bulk_, false),
                    std::move(channel));
    }
    ASSERT_TRUE(group->WaitFormed(Now()).ok());
    communicator_ = MakeCommunicator(std::move(group));
  }
  void TearDown() override {
    communicator_.reset();
    urgent_->End();
    bulk_->End();
    open_->WaitForNone(After(kPatience));
    loop_->Stop();
  }

  const std::shared_ptr<Wire> urgent_ = std::make_shared<Wire>();
  const std::shared_ptr<Wire> bulk_ = std::make_shared<Wire>();
  const std::shared_ptr<TokenBucket> bucket_ = std::make_shared<TokenBucket>();
  const std::shared_ptr<OpenCount> open_ = std::make_shared<OpenCount>();
  metrics::Counter bytes_;
  metrics::Counter lost_;
  std::shared_ptr<EventLoop> loop_;
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace heddle::comm
