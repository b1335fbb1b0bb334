// What an endpoint makes of a new connection: a channel of its group, with the endpoint's links and
// counters; and what its communicator says of the pair.
#include "comm/endpoint/channel_factory.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/thread.h"
#include "comm/communicator.h"
#include "comm/endpoint/communicator_impl.h"
#include "comm/stream/event_loop.h"
#include "tests/comm/message/wire.h"

namespace heddle::comm {
namespace {

constexpr Duration kPatience = std::chrono::minutes(1);

class ChannelFactoryTest : public testing::Test {
 protected:
  void SetUp() override { Begin(1); }
  /// Worker 0 of three, of whom so many share its host.
  void Begin(int members_here) {
    loop_ = *EventLoop::Create();
    GroupOptions options;
    options.generation = 7;
    options.operation_timeout = kPatience;
    for (int rank = 0; rank < std::max(3, members_here); ++rank) {
      options.members.push_back({"worker-" + std::to_string(rank),
                                 rank < members_here ? "heddle1;host=h" : "heddle1;host=other"});
    }
    options.peers = {1, 2};
    group_ = std::make_shared<Group>(loop_, std::move(options),
                                     std::make_shared<SharedRegions>(nullptr));
  }
  void TearDown() override {
    group_->Leave();
    for (const auto& wire : wires_) {
      wire->End();
    }
    factory_.WaitForNone(After(kPatience));
    loop_->Stop();
  }
  Wire& Attach(int peer, TrafficClass traffic_class, const std::string& port) {
    auto wire = std::make_shared<Wire>();
    wires_.push_back(wire);
    wire->transport = "tcp";
    wire->port = port;
    factory_.Attach(*group_, peer, traffic_class, std::make_unique<WireEnd>(wire, false));
    return *wire;
  }
  /// Samples of a family: labels as text, and the value.
  std::vector<std::pair<std::string, double>> Samples(const std::string& name) {
    std::vector<std::pair<std::string, double>> samples;
    for (const auto& family : metrics_.Collect()) {
      for (const auto& sample : family.samples) {
        std::string labels;
        for (const auto& [label, value] : sample.labels) {
          labels += label + "=" + value + " ";
        }
        if (family.name == name) {
          samples.emplace_back(labels, sample.value);
        }
      }
    }
    return samples;
  }
  const ChannelOptions& OptionsOf(int peer, TrafficClass traffic_class) {
    return (*group_->ChannelOf(peer, traffic_class))->options();
  }

  metrics::Registry metrics_;
  ChannelFactory factory_{metrics_};
  std::shared_ptr<EventLoop> loop_;
  std::shared_ptr<Group> group_;
  std::vector<std::shared_ptr<Wire>> wires_;
};

using Counted = std::vector<std::pair<std::string, double>>;

TEST_F(ChannelFactoryTest, AChannelIsOfItsPairAndItsGroup) {
  Attach(2, TrafficClass::kUrgent, "");
  const ChannelOptions& options = OptionsOf(2, TrafficClass::kUrgent);
  EXPECT_EQ(options.peer, 2);
  EXPECT_EQ(options.peer_name, "worker-2");
  EXPECT_EQ(options.traffic_class, TrafficClass::kUrgent);
  EXPECT_EQ(options.generation, 7);
  EXPECT_EQ(options.operation_timeout, kPatience);
  EXPECT_EQ(options.may_spin, Cores() > 1);
}

TEST_F(ChannelFactoryTest, WaitsSpinWhereEveryMemberHasACore) {
  for (const int members : {Cores(), Cores() + 1}) {
    TearDown();
    wires_.clear();
    Begin(members);
    Attach(1, TrafficClass::kBulk, "");
    EXPECT_EQ(OptionsOf(1, TrafficClass::kBulk).may_spin, members == Cores() && Cores() > 1);
  }
}

TEST_F(ChannelFactoryTest, ConnectionsOverNamedPortsAreCounted) {
  Attach(1, TrafficClass::kUrgent, "");
  EXPECT_TRUE(Samples("heddle_comm_rail_connections_total").empty()) << "the kernel's routes chose";
  Attach(1, TrafficClass::kBulk, "a/1");
  Attach(2, TrafficClass::kUrgent, "b/1");
  Attach(2, TrafficClass::kBulk, "a/1");
  EXPECT_EQ(Samples("heddle_comm_rail_connections_total"),
            (Counted{{"port=a/1 ", 2}, {"port=b/1 ", 1}}));
}

// Whatever the number of peers: a thousand workers would have a million series otherwise.
TEST_F(ChannelFactoryTest, BytesAreCountedByTransportAndLossesOnce) {
  for (const int peer : {1, 2}) {
    for (const TrafficClass traffic_class : kEachTrafficClass) {
      Attach(peer, traffic_class, "");
    }
  }
  const Bytes data(10);
  EXPECT_TRUE(group_->Send(1, {.tag = 1, .space = 0}, data, true)->Wait(After(kPatience)).ok());
  EXPECT_EQ(Samples("heddle_comm_sent_bytes_total"), (Counted{{"transport=tcp ", 58}}));
  EXPECT_TRUE(group_->Send(2, {.tag = 1, .space = 0}, data, true)->Wait(After(kPatience)).ok());
  EXPECT_EQ(Samples("heddle_comm_sent_bytes_total"), (Counted{{"transport=tcp ", 2 * 58}}));
  EXPECT_EQ(Samples("heddle_comm_received_bytes_total"), (Counted{{"transport=tcp ", 0}}));
  EXPECT_EQ(Samples("heddle_comm_placed_bytes_total"), (Counted{{"transport=tcp ", 0}}));
  EXPECT_EQ(Samples("heddle_comm_peer_lost_total"), (Counted{{"", 0}}));
  Bytes buffer(1);
  const auto received = group_->Recv(2, {.tag = 1, .space = 0}, buffer, false);
  wires_[2]->End();
  EXPECT_FALSE(received->Wait(After(kPatience)).ok());
  EXPECT_EQ(Samples("heddle_comm_peer_lost_total"), (Counted{{"", 1}}));
}

TEST_F(ChannelFactoryTest, AllChannelsShareTheEndpointsLink) {
  Attach(1, TrafficClass::kBulk, "");
  Attach(2, TrafficClass::kBulk, "");
  const ChannelOptions& one = OptionsOf(1, TrafficClass::kBulk);
  const ChannelOptions& other = OptionsOf(2, TrafficClass::kBulk);
  EXPECT_EQ(one.outgoing, other.outgoing);
  EXPECT_EQ(one.incoming, other.incoming);
  EXPECT_NE(one.incoming, one.outgoing);
  EXPECT_FALSE(one.outgoing->limited());
  factory_.SetLinkRate(1e6);
  EXPECT_TRUE(one.outgoing->limited() && one.incoming->limited());
  EXPECT_EQ(one.outgoing->PieceBytes(1 << 20), 2048U);
  factory_.SetLinkRate(0);
  EXPECT_FALSE(one.outgoing->limited() || one.incoming->limited());
}

TEST_F(ChannelFactoryTest, APairsPortsAreNamedEachOnce) {
  Attach(1, TrafficClass::kBulk, "a/1");
  Attach(1, TrafficClass::kUrgent, "b/1");
  Attach(2, TrafficClass::kBulk, "a/1");
  Attach(2, TrafficClass::kUrgent, "a/1");
  const auto communicator = MakeCommunicator(group_);
  EXPECT_EQ(communicator->ports(1), "a/1, b/1");
  EXPECT_EQ(communicator->ports(2), "a/1");
  EXPECT_EQ(communicator->ports(0), "") << "to itself";
  EXPECT_EQ(communicator->ports(9), "");
  EXPECT_FALSE(communicator->places(1));
  EXPECT_FALSE(communicator->places(9));
  EXPECT_EQ(communicator->rank(), 0);
  EXPECT_EQ(communicator->size(), 3);
  EXPECT_EQ(communicator->generation(), 7);
  EXPECT_EQ(communicator->member_name(2), "worker-2");
  EXPECT_EQ(communicator->transport(1), "tcp");
}

TEST_F(ChannelFactoryTest, APortOfOneConnectionIsThePairs) {
  Attach(1, TrafficClass::kBulk, "");
  Attach(1, TrafficClass::kUrgent, "b/1");
  Attach(2, TrafficClass::kBulk, "a/1");
  Attach(2, TrafficClass::kUrgent, "");
  const auto communicator = MakeCommunicator(group_);
  EXPECT_EQ(communicator->ports(1), "b/1");
  EXPECT_EQ(communicator->ports(2), "a/1");
}

}  // namespace
}  // namespace heddle::comm
