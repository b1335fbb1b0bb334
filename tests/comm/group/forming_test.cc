// How a group comes together and apart, over connections that the test gives it: who is still
// missing, which failure counts, and whose end fails what.
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "comm/group/group.h"
#include "comm/stream/event_loop.h"
#include "tests/comm/message/wire.h"

namespace heddle::comm {
namespace {

constexpr Duration kPatience = std::chrono::minutes(2);

/// Worker 0 of three, whose peers are the other two.
class FormingTest : public testing::Test {
 protected:
  void SetUp() override {
    loop_ = *EventLoop::Create();
    GroupOptions options;
    options.generation = 7;
    options.operation_timeout = kPatience;
    for (int rank = 0; rank < 4; ++rank) {
      options.members.push_back({"worker-" + std::to_string(rank), "heddle1;host=h"});
    }
    options.peers = {1, 2};
    group_ = std::make_shared<Group>(loop_, std::move(options), regions_);
  }
  void TearDown() override {
    group_->Leave();
    for (const auto& wire : wires_) {
      wire->End();
    }
    open_->WaitForNone(After(kPatience));
    loop_->Stop();
  }
  std::shared_ptr<Wire> Attach(int peer, TrafficClass traffic_class) {
    auto wire = std::make_shared<Wire>();
    wires_.push_back(wire);
    ChannelOptions options;
    options.peer = peer;
    options.traffic_class = traffic_class;
    options.peer_name = "worker-" + std::to_string(peer);
    options.generation = 7;
    options.operation_timeout = kPatience;
    options.outgoing = options.incoming = bucket_;
    options.sent_bytes = options.received_bytes = &bytes_;
    options.lost = &lost_;
    options.open = open_;
    group_->Attach(std::make_unique<WireEnd>(wire, false), std::move(options));
    return wire;
  }
  void AttachAll() {
    for (const int peer : {1, 2}) {
      for (const TrafficClass traffic_class : kEachTrafficClass) {
        Attach(peer, traffic_class);
      }
    }
  }
  /// Of the order in which AttachAll makes them.
  Wire& WireOf(int peer, TrafficClass traffic_class) {
    return *wires_[static_cast<size_t>(2 * (peer - 1)) +
                   (traffic_class == kEachTrafficClass[0] ? 0U : 1U)];
  }
  static FrameHeader Frame(FrameKind kind, uint32_t length = 0) {
    FrameHeader header;
    header.generation = 7;
    header.kind = kind;
    header.length = length;
    return header;
  }

  const std::shared_ptr<SharedRegions> regions_ = std::make_shared<SharedRegions>(nullptr);
  const std::shared_ptr<TokenBucket> bucket_ = std::make_shared<TokenBucket>();
  const std::shared_ptr<OpenCount> open_ = std::make_shared<OpenCount>();
  metrics::Counter bytes_;
  metrics::Counter lost_;
  std::shared_ptr<EventLoop> loop_;
  std::vector<std::shared_ptr<Wire>> wires_;
  std::shared_ptr<Group> group_;
};

TEST_F(FormingTest, WhoIsMissingIsNamedAndNobodyElse) {
  EXPECT_EQ(group_->WaitFormed(Now()).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(group_->WaitFormed(Now()).message(),
            "deadline passed while connecting to worker-1, worker-2");
  Attach(1, TrafficClass::kUrgent);
  EXPECT_TRUE(group_->IsAttached(1, TrafficClass::kUrgent));
  EXPECT_FALSE(group_->IsAttached(1, TrafficClass::kBulk));
  EXPECT_EQ(group_->WaitFormed(Now()).message(),
            "deadline passed while connecting to worker-1, worker-2")
      << "both of its connections count";
  Attach(1, TrafficClass::kBulk);
  EXPECT_EQ(group_->WaitFormed(Now()).message(), "deadline passed while connecting to worker-2");
  Attach(2, TrafficClass::kBulk);
  EXPECT_EQ(group_->WaitFormed(Now()).message(), "deadline passed while connecting to worker-2");
  Attach(2, TrafficClass::kUrgent);
  EXPECT_TRUE(group_->WaitFormed(Now()).ok());
}

TEST_F(FormingTest, AConnectionMoreIsDropped) {
  AttachAll();
  const auto second = Attach(1, TrafficClass::kBulk);
  EXPECT_TRUE(second->gone);
  EXPECT_FALSE(WireOf(1, TrafficClass::kBulk).gone);
  EXPECT_TRUE(group_->WaitFormed(Now()).ok());
  group_->Abort(UnavailableError("enough"));
  EXPECT_TRUE(group_->ended());
  EXPECT_TRUE(Attach(2, TrafficClass::kBulk)->gone) << "it has ended";
}

TEST_F(FormingTest, TheFirstFailureCountsAndNoneAfterwards) {
  group_->FailForming(UnavailableError("first"));
  group_->FailForming(UnavailableError("second"));
  EXPECT_EQ(group_->WaitFormed(After(kPatience)).message(), "first");
}

TEST_F(FormingTest, WhatIsFormedDoesNotFailToForm) {
  AttachAll();
  ASSERT_TRUE(group_->WaitFormed(After(kPatience)).ok());
  group_->FailForming(UnavailableError("too late"));
  EXPECT_TRUE(group_->WaitFormed(Now()).ok());
}

TEST_F(FormingTest, AnEndIsWhatAWaitForTheGroupEndsWith) {
  group_->Abort(AbortedError("generation 8 has begun"));
  EXPECT_EQ(group_->WaitFormed(After(kPatience)).message(), "generation 8 has begun");
  group_->Abort(AbortedError("again"));
  EXPECT_EQ(group_->WaitFormed(After(kPatience)).message(), "generation 8 has begun");
}

TEST_F(FormingTest, APeerThatIsLostOrAbortsWhileItFormsIsTheReason) {
  for (const bool lost : {true, false}) {
    if (!lost) {
      TearDown();
      wires_.clear();
      SetUp();
    }
    const auto wire = Attach(1, TrafficClass::kBulk);
    if (lost) {
      wire->End();
    } else {
      wire->Give(Frame(FrameKind::kAbort, 2), "no");
    }
    EXPECT_EQ(group_->WaitFormed(After(kPatience)).message(),
              lost ? "worker-1 was lost: the wire was cut" : "worker-1 aborted: no");
  }
}

// It was done with the group before this one was.
TEST_F(FormingTest, APeerThatLeftIsNoFailureToForm) {
  AttachAll();
  Bytes buffer(1);
  const auto received = group_->Recv(1, {.tag = 1, .space = 0}, buffer, false);
  WireOf(1, TrafficClass::kBulk).Give(Frame(FrameKind::kGoodbye));
  EXPECT_EQ(received->Wait(After(kPatience)).message(), "worker-1 left the group");
  EXPECT_TRUE(group_->WaitFormed(Now()).ok());
}

TEST_F(FormingTest, ALossFailsBothConnectionsOfThePairAndIsHeardOfOnce) {
  AttachAll();
  std::mutex mutex;
  std::vector<std::pair<int, std::string>> heard;
  group_->losses().SetHandler([&](int peer, const Status& reason) {
    const std::lock_guard lock(mutex);
    heard.emplace_back(peer, reason.message());
  });
  Bytes buffer(1);
  Bytes other(1);
  Bytes third(1);
  const auto urgent = group_->Recv(1, {.tag = 1, .space = 0}, buffer, true);
  const auto bulk = group_->Recv(1, {.tag = 1, .space = 0}, other, false);
  const auto elsewhere = group_->Recv(2, {.tag = 1, .space = 0}, third, false);
  WireOf(1, TrafficClass::kUrgent).End();
  const std::string said = "worker-1 was lost: the wire was cut";
  EXPECT_EQ(urgent->Wait(After(kPatience)).message(), said);
  EXPECT_EQ(bulk->Wait(After(kPatience)).message(), said);
  EXPECT_FALSE(elsewhere->Done()) << "the others go on";
  EXPECT_EQ(lost_.Value(), 1);
  group_->losses().DropHandler();
  EXPECT_EQ(heard, (std::vector<std::pair<int, std::string>>{{1, said}}));
}

// A pair's second connection that breaks after the first said why is no loss of its own.
TEST_F(FormingTest, LastWordsOfOneConnectionAreTheOthers) {
  AttachAll();
  Bytes buffer(1);
  Bytes other(1);
  const auto urgent = group_->Recv(2, {.tag = 1, .space = 0}, buffer, true);
  const auto bulk = group_->Recv(2, {.tag = 1, .space = 0}, other, false);
  WireOf(2, TrafficClass::kUrgent).Give(Frame(FrameKind::kAbort, 3), "why");
  EXPECT_EQ(urgent->Wait(After(kPatience)).message(), "worker-2 aborted: why");
  WireOf(2, TrafficClass::kBulk).End();
  EXPECT_EQ(bulk->Wait(After(kPatience)).message(), "worker-2 aborted: why");
  bool heard = false;
  group_->losses().SetHandler([&](int /*peer*/, const Status& /*reason*/) { heard = true; });
  group_->losses().Deliver();
  group_->losses().DropHandler();
  EXPECT_FALSE(heard);
}

TEST_F(FormingTest, OperationsWithWhoIsNoPeerEndAtOnce) {
  AttachAll();
  Bytes data(10);
  for (const int rank : {-1, 4}) {
    const Status status = group_->Send(rank, {.tag = 1, .space = 0}, data, false)->Wait(Now());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "rank " + std::to_string(rank) + " in a group of 4");
    EXPECT_EQ(group_->Recv(rank, {.tag = 1, .space = 0}, data, true)->Wait(Now()).code(),
              StatusCode::kInvalidArgument);
  }
  const Status status = group_->Recv(3, {.tag = 1, .space = 0}, data, false)->Wait(Now());
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "worker-0 is not connected to worker-3");
  EXPECT_EQ(group_->transport(0), "self");
  EXPECT_EQ(group_->transport(1), "wire");
  EXPECT_EQ(group_->transport(3), "none");
  EXPECT_TRUE(group_->IsPeer(2));
  EXPECT_FALSE(group_->IsPeer(3));
}

TEST_F(FormingTest, BytesSentAreThoseOfBothConnections) {
  AttachAll();
  ASSERT_TRUE(group_->WaitFormed(Now()).ok());
  const Bytes data(10);
  EXPECT_TRUE(group_->Send(1, {.tag = 1, .space = 0}, data, false)->Wait(After(kPatience)).ok());
  EXPECT_TRUE(group_->Send(1, {.tag = 1, .space = 0}, data, true)->Wait(After(kPatience)).ok());
  EXPECT_TRUE(group_->Send(2, {.tag = 1, .space = 0}, data, true)->Wait(After(kPatience)).ok());
  EXPECT_EQ(group_->BytesSent(), (std::vector<int64_t>{0, 2 * 58, 58, 0}));
  EXPECT_EQ(WireOf(1, TrafficClass::kBulk).Frames().size(), 1U);
  EXPECT_EQ(WireOf(2, TrafficClass::kBulk).Frames().size(), 0U);
}

TEST_F(FormingTest, WhoEndsTellsAllOfThemWhy) {
  for (const bool aborts : {false, true}) {
    if (aborts) {
      TearDown();
      wires_.clear();
      SetUp();
    }
    AttachAll();
    if (aborts) {
      group_->Abort(UnavailableError("enough"));
    } else {
      group_->Leave();
    }
    for (const auto& wire : wires_) {
      const auto frames = wire->Frames();
      ASSERT_EQ(frames.size(), 1U);
      EXPECT_EQ(frames[0].kind, aborts ? FrameKind::kAbort : FrameKind::kGoodbye);
    }
  }
}

}  // namespace
}  // namespace heddle::comm
