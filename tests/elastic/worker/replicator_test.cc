// Workers' snapshots in each other's memory: what arrives is what was, what does not arrive whole
// does not count, and nobody waits for ever.
#include "elastic/worker/replicas/replicator.h"

#include <atomic>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/comm/cluster.h"
#include "tests/support/eventually.h"

namespace heddle::elastic {
namespace {

using checkpoint::StoredBox;
using comm::Cluster;
using comm::Media;

constexpr int64_t kGeneration = 3;

// Rank r holds tensors of r + 1 sizes, the last of them uneven.
std::vector<StoredBox> BoxesOf(int rank) {
  std::vector<StoredBox> boxes;
  for (int i = 0; i <= rank; ++i) {
    const Shape shape = {100 + i, 517};
    boxes.push_back({.name = "w" + std::to_string(rank) + "." + std::to_string(i),
                     .role = "master",
                     .dtype = DType::kF32,
                     .global_shape = shape,
                     .box = WholeBox(shape)});
  }
  return boxes;
}

// The state of a rank at a step.
std::vector<Bytes> StateOf(int rank, int64_t step) {
  Random random(static_cast<uint64_t>(rank * 1000 + step));
  std::vector<Bytes> state;
  for (const StoredBox& box : BoxesOf(rank)) {
    Bytes& bytes = state.emplace_back(static_cast<size_t>(ElementCount(box.box.extent)) * 4);
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(random.Below(200));
    }
  }
  return state;
}

// A worker's side of it.
class Node {
 public:
  Node(comm::Communicator& group, std::vector<ReplicaOwner> owners, bool compress, Duration timeout)
      : rank_(group.rank()),
        store_(registry_) {
    auto writer = checkpoint::Writer::Create({.root = "", .name = "w", .niceness = 0},
                                             ReplicaFigures(registry_));
    EXPECT_TRUE(writer.ok()) << writer.status().ToString();
    writer_ = *std::move(writer);
    replicator_ = std::make_unique<Replicator>(
        ReplicatorOptions{.generation = kGeneration,
                          .owners = std::move(owners),
                          .compress = compress,
                          .timeout = timeout,
                          .group = &group,
                          .writer = writer_.get(),
                          .store = &store_,
                          .registry = &registry_,
                          .changed = [this] { announced_ = announced_ + 1; }});
  }

  // A snapshot, and then the step that follows it.
  void Take(int64_t step, bool whole) {
    std::vector<Bytes> state = StateOf(rank_, step);
    std::vector<checkpoint::BoxView> views;
    const auto boxes = BoxesOf(rank_);
    for (size_t i = 0; i < boxes.size(); ++i) {
      views.push_back({.stored = boxes[i], .bytes = state[i]});
    }
    replicator_->Take(step, whole, views);
    for (Bytes& bytes : state) {
      writer_->BeforeChange(bytes);
      std::ranges::fill(bytes, std::byte{0xEE});
    }
    writer_->FinishCopy();
  }
  /// Whether the exchange ended.
  bool Wait() const {
    return heddle::testing::Eventually([&] { return !replicator_->exchanging(); });
  }
  std::vector<int> Owners(int64_t step) const {
    for (const auto& held : store_.List()) {
      if (held.step() == step) {
        return {held.owners().begin(), held.owners().end()};
      }
    }
    return {};
  }
  void ExpectHolds(int owner, int64_t step) const {
    const auto parts = store_.Find({.step = step, .generation = kGeneration}, {owner});
    ASSERT_TRUE(parts.ok()) << parts.status().ToString();
    const auto reader = checkpoint::ReaderOver(*parts);
    ASSERT_TRUE(reader.ok()) << reader.status().ToString();
    const auto boxes = BoxesOf(owner);
    const auto state = StateOf(owner, step);
    for (size_t i = 0; i < boxes.size(); ++i) {
      Bytes out(state[i].size());
      const Status status = (*reader)->Read(boxes[i].tensor().key(), boxes[i].box, out);
      ASSERT_TRUE(status.ok()) << status.ToString();
      EXPECT_TRUE(out == state[i]) << boxes[i].name;
    }
  }
  double Failures() { return registry_.GetCounter("heddle_replica_failures_total", "").Value(); }

  metrics::Registry registry_;
  const int rank_;
  std::atomic<int> announced_ = 0;
  ReplicaStore store_;
  std::unique_ptr<checkpoint::Writer> writer_;
  std::unique_ptr<Replicator> replicator_;
};

// Each rank's part goes to the next one; the last rank has none of its own, the first two copies.
std::vector<ReplicaOwner> Ring(int size) {
  std::vector<ReplicaOwner> owners;
  for (int rank = 0; rank + 1 < size; ++rank) {
    owners.push_back({.rank = rank, .boxes = BoxesOf(rank), .holders = {rank + 1}});
  }
  owners[0].holders.push_back(size - 1);
  return owners;
}

class ReplicatorTest : public ::testing::TestWithParam<bool> {};

TEST_P(ReplicatorTest, EveryHolderHasTheBitsOfTheStep) {
  const std::vector<std::vector<int>> held_by = {{0}, {0, 1}, {1, 2}, {0, 2}};
  Cluster cluster(4, Media::kMixed);
  cluster.Run(kGeneration, [&](int rank, comm::Communicator& group) {
    Node node(group, Ring(4), GetParam(), heddle::testing::kHang);
    for (int64_t step = 1; step <= 5; ++step) {
      node.Take(step, true);
      ASSERT_TRUE(node.Wait());
      EXPECT_FALSE(node.replicator_->failed());
      const std::vector<int>& expected = held_by[static_cast<size_t>(rank)];
      EXPECT_EQ(node.Owners(step), expected);
      for (const int owner : expected) {
        node.ExpectHolds(owner, step);
        if (step > 1) {
          node.ExpectHolds(owner, step - 1);
        }
      }
      EXPECT_EQ(node.store_.List().size(), step > 1 ? 2U : 1U);
      EXPECT_TRUE(
          group.Barrier({.group = {}, .tag = static_cast<uint64_t>(step), .deadline = {}}).ok());
    }
    EXPECT_EQ(node.registry_.GetGauge("heddle_replica_step", "").Value(), 5);
    EXPECT_EQ(node.Failures(), 0);
    EXPECT_GE(node.announced_, 10);
  });
}

TEST_P(ReplicatorTest, APartThatIsNotWholeDoesNotCount) {
  // The owner's link is slow: it is gone while its part is on its way.
  Cluster cluster(3, Media::kTcp);
  cluster.Run(kGeneration, [&](int rank, comm::Communicator& group) {
    const std::vector<ReplicaOwner> owners = {{.rank = 0, .boxes = BoxesOf(0), .holders = {1, 2}},
                                              {.rank = 1, .boxes = BoxesOf(1), .holders = {2}}};
    auto node = std::make_unique<Node>(group, owners, GetParam(), heddle::testing::kHang);
    node->Take(1, true);
    ASSERT_TRUE(node->Wait());
    EXPECT_FALSE(node->replicator_->failed());
    group.Barrier({.group = {}, .tag = 1, .deadline = {}}).IgnoreError("only so that all begin");
    const int64_t sent = group.BytesSent()[1];
    if (rank == 0) {
      cluster.endpoint(0).SetLinkRate(2000);  // Minutes for its part.
    }
    node->Take(2, true);
    if (rank == 0) {
      EXPECT_TRUE(heddle::testing::Eventually([&] { return group.BytesSent()[1] > sent; }));
      node.reset();  // It waits for none of it.
      cluster.endpoint(0).SetLinkRate(0);
      return;
    }
    ASSERT_TRUE(node->Wait());
    EXPECT_TRUE(node->replicator_->failed());
    EXPECT_EQ(node->Failures(), 0) << "the end of a group is no failure of its own";
    EXPECT_THAT(node->Owners(2), ::testing::Not(::testing::Contains(0)));
    node->ExpectHolds(0, 1);
  });
}

TEST_P(ReplicatorTest, WhatCannotBeTrueIsRefusedAndTrainingGoesOn) {
  Cluster cluster(2, Media::kShm);
  cluster.Run(kGeneration, [](int rank, comm::Communicator& group) {
    std::vector<ReplicaOwner> owners = {{.rank = 0, .boxes = BoxesOf(0), .holders = {1}}};
    if (rank == 1) {
      owners[0].boxes[0].name = "another";  // What rank 0 says does not fit the plan of rank 1.
    }
    Node node(group, owners, GetParam(), heddle::testing::kHang);
    node.Take(1, true);
    ASSERT_TRUE(node.Wait());
    EXPECT_EQ(node.replicator_->failed(), rank == 1);
    EXPECT_EQ(node.Failures(), rank);
    EXPECT_EQ(node.Owners(1), rank == 0 ? std::vector<int>{0} : std::vector<int>());
    EXPECT_TRUE(group.Barrier({.group = {}, .tag = 1, .deadline = {}}).ok());
  });
}

TEST_P(ReplicatorTest, APartThatIsTooLargeIsNotTaken) {
  Cluster cluster(2, Media::kShm);
  cluster.Run(kGeneration, [](int rank, comm::Communicator& group) {
    std::vector<ReplicaOwner> owners = {{.rank = 0, .boxes = BoxesOf(0), .holders = {1}}};
    if (rank == 1) {
      owners[0].boxes[0].box.extent = {1, 2};
    }
    Node node(group, owners, GetParam(), std::chrono::seconds(1));
    node.Take(1, true);
    ASSERT_TRUE(node.Wait());
    EXPECT_TRUE(node.replicator_->failed()) << "the owner waits in vain, but not for ever";
    EXPECT_EQ(node.Failures(), 1);
    EXPECT_TRUE(group.Barrier({.group = {}, .tag = 1, .deadline = {}}).ok());
  });
}

TEST_P(ReplicatorTest, AnOwnerWithoutAPartSaysSo) {
  Cluster cluster(2, Media::kShm);
  cluster.Run(kGeneration, [](int rank, comm::Communicator& group) {
    const std::vector<ReplicaOwner> owners = {{.rank = 0, .boxes = BoxesOf(0), .holders = {1}}};
    Node node(group, owners, GetParam(), heddle::testing::kHang);
    if (rank == 0) {
      Bytes few(8);
      const checkpoint::BoxView bad{.stored = BoxesOf(0)[0], .bytes = few};
      node.replicator_->Take(1, true, {{bad}});
    } else {
      node.Take(1, true);
    }
    ASSERT_TRUE(node.Wait());
    EXPECT_TRUE(node.replicator_->failed());
    EXPECT_EQ(node.Failures(), 1);
    node.Take(2, false);
    ASSERT_TRUE(node.Wait());
    EXPECT_FALSE(node.replicator_->failed());
    EXPECT_EQ(node.Owners(2), std::vector<int>{0});
    EXPECT_TRUE(group.Barrier({.group = {}, .tag = 1, .deadline = {}}).ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Compress, ReplicatorTest, ::testing::Bool(), [](const auto& instance) {
  return instance.param ? "compressed" : "raw";
});

}  // namespace
}  // namespace heddle::elastic
