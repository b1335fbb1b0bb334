// Members whose calls disagree all learn who disagrees in what, and not at the bound of their
// waits.
#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/collective/collective.h"
#include "comm/communicator.h"
#include "comm/group/segment.h"
#include "comm/message/call_signature.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

using Call = std::function<Status(Communicator&)>;

struct Case {
  std::string name;
  Call most;
  Call odd;  ///< What one member calls.
  std::string field;
  /// Members whose calls end with an error at least. A small broadcast may have ended.
  int least = 2;
};

Status Reduce(Communicator& communicator, DType dtype, ReduceOp op, size_t bytes) {
  Bytes buffer(bytes);
  return communicator.AllReduce(buffer, dtype, op, {});
}

Call AllReduce(DType dtype, ReduceOp op, size_t bytes) {
  return [=](Communicator& communicator) { return Reduce(communicator, dtype, op, bytes); };
}

Call UrgentSum(size_t bytes) {
  return [=](Communicator& communicator) {
    Bytes buffer(bytes);
    return communicator.AllReduce(buffer, DType::kF32, ReduceOp::kSum,
                                  {.group = {}, .tag = 0, .deadline = {}, .urgent = true});
  };
}

Call Broadcast(int root, size_t bytes) {
  return [=](Communicator& communicator) {
    Bytes buffer(bytes);
    return communicator.Broadcast(buffer, root, {});
  };
}

Call Gather(std::vector<int64_t> counts) {
  return [counts](Communicator& communicator) {
    int64_t total = 0;
    for (const int64_t count : counts) {
      total += count;
    }
    const Bytes input(static_cast<size_t>(counts[static_cast<size_t>(communicator.rank())]));
    Bytes output(static_cast<size_t>(total));
    return communicator.AllGather(input, output, counts, DType::kU8, {});
  };
}

Call Exchange(int64_t to_each, int64_t from_each) {
  return [=](Communicator& communicator) {
    const auto size = static_cast<size_t>(communicator.size());
    std::vector<int64_t> sent(size, to_each);
    std::vector<int64_t> received(size, from_each);
    received[static_cast<size_t>(communicator.rank())] = to_each;
    const Bytes input(size * static_cast<size_t>(to_each));
    Bytes output((size - 1) * static_cast<size_t>(from_each) + static_cast<size_t>(to_each));
    return communicator.AllToAll(input, sent, output, received, DType::kU8, {});
  };
}

Status Barrier(Communicator& communicator) {
  return communicator.Barrier({});
}

Status Records(Communicator& communicator) {
  return communicator.AllGatherBytes({}, {}).status();
}

// Everyone holds one leaf of four bytes.
Status Reproducible(Communicator& communicator) {
  TreeContributions contributions;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    contributions.nodes.push_back({{.level = 0, .index = rank}});
  }
  const Bytes mine(4);
  const std::span<const std::byte> span = mine;
  Bytes output(4);
  return communicator.ReduceTree(contributions, std::span(&span, 1), output, DType::kF32, {});
}

std::vector<Case> AllCases() {
  const Call sum = AllReduce(DType::kF32, ReduceOp::kSum, 4000);
  const Call large = AllReduce(DType::kF32, ReduceOp::kSum, 4 << 20);
  return {
      {"Op", sum, AllReduce(DType::kF32, ReduceOp::kMax, 4000), "op"},
      {"OpOfLarge", large, AllReduce(DType::kF32, ReduceOp::kMin, 4 << 20), "op"},
      {"Urgency", sum, UrgentSum(4000), "urgent"},
      {"UrgencyOfLarge", UrgentSum(4 << 20), large, "urgent"},
      {"Dtype", sum, AllReduce(DType::kI32, ReduceOp::kSum, 4000), "dtype"},
      {"Size", sum, AllReduce(DType::kF32, ReduceOp::kSum, 4004), "counts"},
      {"SizeAcrossAlgorithms", sum, large, "counts"},
      {"Kind", sum, Barrier, "barrier"},
      {"KindOfLarge", large, Broadcast(1, 4 << 20), "broadcast"},
      {"BarrierAndBroadcast", Barrier, Broadcast(0, 8), "broadcast"},
      {"BarrierAndBroadcastFromAnother", Barrier, Broadcast(2, 8), "broadcast"},
      {"BarrierAndRecords", Barrier, Records, "bytes"},
      {"RootOfLarge", Broadcast(0, 1 << 20), Broadcast(2, 1 << 20), "root"},
      {"BroadcastSize", Broadcast(0, 100), Broadcast(0, 101), "worker-", 1},
      {"Counts", Gather({10, 20, 30}), Gather({10, 30, 20}), "counts"},
      {"Blocks", Exchange(8, 8), Exchange(8, 9), "9", 1},
      {"LargeBlocks", Exchange(1 << 20, 1 << 20), Exchange(1 << 20, 9), "9"},
      // Among members that share memory: one in the segment, the other by messages.
      {"BlocksAndSum", Exchange(8, 8), sum, "all-reduce"},
      {"SumAndBlocks", sum, Exchange(8, 8), "all-to-all"},
      {"LargeSumAndRecords", large, Records, "bytes"},
      {"RecordsAndLargeBroadcast", Records, Broadcast(1, 1 << 20), "broadcast"},
      {"ReproducibleAndBarrier", Reproducible, Barrier, "barrier"},
      {"GatherAndReproducible", Gather({10, 20, 30}), Reproducible, "reproducible"},
  };
}

TEST(CallSignatureTest, OnlyMessagesOfCollectivesHaveOne) {
  const uint32_t signature = EncodeSignature({.kind = CallKind::kBarrier});
  for (const Phase phase : {Phase::kBarrierUp, Phase::kTreeResult}) {
    const uint64_t space = SpaceOf(signature) | static_cast<uint64_t>(phase)
                                                    << (kSignatureBits + kMajorBits + kMinorBits);
    EXPECT_TRUE(IsCollective(space));
    EXPECT_EQ(SignatureOf(space), signature);
  }
  EXPECT_FALSE(IsCollective(0)) << "a user's message";
  EXPECT_FALSE(IsCollective(kSegmentSpace | 1)) << "a segment is formed";
  EXPECT_FALSE(IsCollective(kSegmentByMessages | kSegmentOrdinalMask)) << "a call went elsewhere";
}

// Everyone is there; no collective has begun.
void Meet(Communicator& communicator) {
  Bytes none;
  std::vector<Work> works;
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (peer != communicator.rank()) {
      works.push_back(communicator.Recv(peer, 76, none, true));
      works.push_back(communicator.Send(peer, 76, none, true));
    }
  }
  for (const Work& work : works) {
    ASSERT_TRUE(work.Wait().ok());
  }
}

/// Whose calls are odd, and over what.
struct Odd {
  Media media;
  int rank;
};

/// Takes cases until there are none left.
void NameEveryMember(Odd odd, bool first_call, std::atomic<size_t>& next) {
  static const std::vector<Case> cases = AllCases();
  Cluster cluster(3, odd.media);
  int64_t generation = 0;
  for (size_t i = next.fetch_add(1); i < cases.size(); i = next.fetch_add(1)) {
    const Case& one = cases[i];
    SCOPED_TRACE(one.name + ", odd is " + std::to_string(odd.rank));
    std::vector<Status> results(3);
    cluster.Run(++generation, [&](int rank, Communicator& communicator) {
      // Everyone is there: who has not formed the group yet learns of its end only.
      Meet(communicator);
      if (!first_call) {
        ASSERT_TRUE(communicator.Barrier({.group = {}, .tag = 1, .deadline = {}}).ok());
      }
      results[static_cast<size_t>(rank)] =
          rank == odd.rank ? one.odd(communicator) : one.most(communicator);
      // Whoever ends well may have been done before the others noticed; it stays until they know.
      if (results[static_cast<size_t>(rank)].ok()) {
        Bytes none;
        EXPECT_FALSE(communicator.Recv((rank + 1) % 3, 77, none, true).Wait().ok());
      }
    });
    int named = 0;
    for (const Status& status : results) {
      EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument)
          << status.ToString();
      if (!status.ok()) {
        ++named;
        EXPECT_THAT(status.message(), testing::HasSubstr(one.field));
        EXPECT_THAT(status.message(), testing::HasSubstr("worker-"));
      }
    }
    EXPECT_GE(named, one.least);
  }
}

class DisagreementTest : public testing::TestWithParam<Media> {
 protected:
  // One of three calls something else; whichever it is. Many groups wait at the same time: most of
  // a case is the pause after which members ask what the others call.
  static void WhicheverIsOdd(bool first_call) {
    const size_t groups_at_once = RdmaDevice().empty() ? 15 : 3;
    std::array<std::atomic<size_t>, 3> next{};
    std::vector<std::thread> groups;
    for (size_t i = 0; i < groups_at_once; ++i) {
      groups.emplace_back([rank = i % 3, first_call, &next] {
        NameEveryMember({.media = GetParam(), .rank = static_cast<int>(rank)}, first_call,
                        next[rank]);
      });
    }
    for (std::thread& group : groups) {
      group.join();
    }
  }
};

TEST_P(DisagreementTest, IsNamedToEveryMember) {
  WhicheverIsOdd(false);
}

// While some of the members are about to form the segment that they will share.
TEST_P(DisagreementTest, InTheFirstCallIsNamedToEveryMember) {
  WhicheverIsOdd(true);
}

/// Who has barriers in flight that nobody else has called, and so holds traffic classes of the
/// segment.
struct Held {
  int rank;
  uint64_t traffic_classes;
};

// A call of one member that does not find its place in the segment.
void NameInAFullSegment(Held held_by, int odd, const Case& one) {
  SCOPED_TRACE(one.name + ", odd is " + std::to_string(odd));
  Cluster cluster(3, Media::kShm);
  std::atomic<uint64_t> begun = 0;
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    ASSERT_TRUE(communicator.Barrier({}).ok());
    std::vector<Work> held;
    for (uint64_t tag = 0; rank == held_by.rank && tag < held_by.traffic_classes; ++tag) {
      held.push_back(communicator.Start(
          [&communicator, &begun, tag] {
            begun.fetch_add(1);
            return communicator.Barrier({.group = {}, .tag = 10 + tag, .deadline = {}});
          },
          /*urgent=*/false));
    }
    // The last may still be about to wait: that makes an easier case, not another answer.
    while (begun.load() < held_by.traffic_classes) {
      std::this_thread::yield();
    }
    ComesToWait(cluster.endpoint(held_by.rank), 1);
    const Status status = rank == odd ? one.odd(communicator) : one.most(communicator);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    EXPECT_THAT(status.message(), testing::HasSubstr(one.field));
    EXPECT_THAT(status.message(), testing::Not(testing::HasSubstr("unknown")));
    for (const Work& work : held) {
      EXPECT_FALSE(work.Wait().ok());
    }
  });
}

// The first member has no traffic class left, and tells those who wait for it in the segment.
TEST(DisagreementInAFullSegmentTest, IsNamedToEveryMember) {
  const Call sum = AllReduce(DType::kF32, ReduceOp::kSum, 8);
  for (int odd = 0; odd < 3; ++odd) {
    NameInAFullSegment({.rank = 0, .traffic_classes = 4}, odd,
                       {"Op", sum, AllReduce(DType::kF32, ReduceOp::kMin, 8), "op min"});
    NameInAFullSegment({.rank = 0, .traffic_classes = 4}, odd,
                       {"Blocks", sum, Exchange(8, 8), "all-to-all"});
    NameInAFullSegment({.rank = 0, .traffic_classes = 4}, odd,
                       {"Urgency", sum, UrgentSum(8), "urgent"});
  }
}

// Another member cannot announce its call where the first is expected to choose it, so that only
// this member can find out.
TEST(DisagreementInAFullSegmentTest, IsFoundByWhoCouldNotAnnounceItsCall) {
  for (const int odd : {1, 2}) {
    NameInAFullSegment(
        {.rank = odd, .traffic_classes = 1}, odd,
        {"Blocks", Exchange(8, 8), AllReduce(DType::kF32, ReduceOp::kSum, 8), "all-to-all"});
  }
}

// Nobody looks then; the calls still do not take each other's messages.
TEST(DisagreementWithoutDiagnosisTest, EndsAtTheDeadline) {
  for (const Media& media : {Media::kShm, Media::kTcp}) {
    Cluster cluster(2, media);
    std::vector<std::thread> members;
    for (int rank = 0; rank < 2; ++rank) {
      members.emplace_back([&cluster, rank] {
        GroupOptions options = cluster.Options(rank, 1);
        options.diagnose_calls = false;
        const auto communicator = cluster.endpoint(rank).Connect(options, After(kAmple));
        ASSERT_TRUE(communicator.ok()) << communicator.status().ToString();
        Meet(**communicator);
        // Several times as long as a wait lasts before it looks for its reason.
        const CollectiveOptions brief{
            .group = {}, .tag = 0, .deadline = After(std::chrono::milliseconds(400))};
        const Status status = rank == 0 ? (*communicator)->Barrier(brief)
                                        : (*communicator)->AllGatherBytes({}, brief).status();
        EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
        Meet(**communicator);
      });
    }
    for (std::thread& member : members) {
      member.join();
    }
  }
}

class PatienceTest : public testing::TestWithParam<Media> {};

// Calls of one tag one after the other, while members come late to each in turn, later than a wait
// looks for its reason: whoever is ahead waits in the next call, whoever is behind in the one
// before.
void ComeLate(Communicator& communicator, int round) {
  constexpr Duration kLate = std::chrono::milliseconds(110);
  const int rank = communicator.rank();
  if (round % 3 == rank) {
    std::this_thread::sleep_for(2 * kLate);
  }
  Status status = Reduce(communicator, DType::kF32, ReduceOp::kSum, 4);
  ASSERT_TRUE(status.ok()) << status.ToString();
  status = Broadcast(round % 3, 1 << 20)(communicator);
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (const Call& call : {Call(Barrier), Call(Records), Exchange(1000, 1000), Call(Barrier),
                           Exchange(1 << 20, 1 << 20), Call(Reproducible)}) {
    if (round % 2 == 1 && (rank + round) % 3 == 0) {
      std::this_thread::sleep_for(kLate);
    }
    status = call(communicator);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  status = Reduce(communicator, DType::kBF16, ReduceOp::kMax, 2 << 20);
  ASSERT_TRUE(status.ok()) << status.ToString();
}

TEST_P(PatienceTest, ALateMemberIsNoDisagreement) {
  std::vector<std::thread> groups;  // Most of their time they wait.
  for (const int first : {0, 2, 4}) {
    groups.emplace_back([first] {
      Cluster cluster(3, GetParam());
      cluster.Run(1, [first](int /*rank*/, Communicator& communicator) {
        ComeLate(communicator, first);
        ComeLate(communicator, first + 1);
      });
    });
  }
  for (std::thread& group : groups) {
    group.join();
  }
}

INSTANTIATE_TEST_SUITE_P(Media,
                         PatienceTest,
                         testing::ValuesIn(MediaHere({.mixed = true})),
                         [](const auto& parameter) { return MediaName(parameter.param); });

INSTANTIATE_TEST_SUITE_P(Media,
                         DisagreementTest,
                         testing::ValuesIn(MediaHere({.mixed = true})),
                         [](const auto& parameter) { return MediaName(parameter.param); });

}  // namespace
}  // namespace heddle::comm
