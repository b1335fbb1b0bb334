// Members whose calls disagree all learn who disagrees in what, long before a wait's bound.
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/communicator.h"
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

std::vector<Case> AllCases() {
  const Call sum = AllReduce(DType::kF32, ReduceOp::kSum, 4000);
  const Call large = AllReduce(DType::kF32, ReduceOp::kSum, 4 << 20);
  return {
      {"Op", sum, AllReduce(DType::kF32, ReduceOp::kMax, 4000), "op"},
      {"OpOfLarge", large, AllReduce(DType::kF32, ReduceOp::kMin, 4 << 20), "op"},
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
  };
}

class DisagreementTest : public testing::TestWithParam<std::tuple<Media, int>> {};

// One of three calls something else; whichever it is.
TEST_P(DisagreementTest, IsNamedToEveryMember) {
  const auto [media, odd] = GetParam();
  Cluster cluster(3, media);
  int64_t generation = 0;
  for (const Case& one : AllCases()) {
    SCOPED_TRACE(one.name);
    std::vector<Status> results(3);
    const Time begun = Now();
    cluster.Run(++generation, [&](int rank, Communicator& communicator) {
      // Everyone is there: who has not formed the group yet learns of its end only.
      ASSERT_TRUE(communicator.Barrier({.group = {}, .tag = 1, .deadline = {}}).ok());
      results[static_cast<size_t>(rank)] =
          rank == odd ? one.odd(communicator) : one.most(communicator);
      // Whoever ends well may have been done before the others noticed; it stays until they know.
      if (results[static_cast<size_t>(rank)].ok()) {
        Bytes none;
        (void)communicator.Recv((rank + 1) % 3, 77, none).Wait(After(std::chrono::seconds(2)));
      }
    });
    const Duration took = Now() - begun;
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
    EXPECT_LT(took, std::chrono::seconds(3) * kSlowdown);
  }
}

TEST(PatienceTest, ALateMemberIsNoDisagreement) {
  // Calls of one tag one after the other, while members come late to each in turn: whoever is ahead
  // waits in the next call, whoever is behind in the one before.
  Cluster cluster(3, Media::kShm);
  cluster.Run(1, [](int rank, Communicator& communicator) {
    for (int round = 0; round < 6; ++round) {
      if (round % 3 == rank) {
        std::this_thread::sleep_for(std::chrono::milliseconds(350));
      }
      Status status = Reduce(communicator, DType::kF32, ReduceOp::kSum, 4);
      ASSERT_TRUE(status.ok()) << status.ToString();
      status = Broadcast(round % 3, 1 << 20)(communicator);
      ASSERT_TRUE(status.ok()) << status.ToString();
      status = Barrier(communicator);
      ASSERT_TRUE(status.ok()) << status.ToString();
      status = Reduce(communicator, DType::kBF16, ReduceOp::kMax, 2 << 20);
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Members,
                         DisagreementTest,
                         testing::Combine(testing::Values(Media::kShm, Media::kTcp),
                                          testing::Range(0, 3)),
                         [](const auto& parameter) {
                           return MediaName(std::get<0>(parameter.param)) + "Rank" +
                                  std::to_string(std::get<1>(parameter.param));
                         });

}  // namespace
}  // namespace heddle::comm
