// What callers may not ask for is refused before anything is sent, and what was sent is counted.
#include <algorithm>
#include <array>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/thread.h"
#include "comm/communicator.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

using testing::HasSubstr;

// Everybody does the same wrong, so that nobody waits for the others.
class ArgumentsTest : public testing::TestWithParam<Media> {
 protected:
  static void Refused(const Status& status, const std::string& why) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << why;
    EXPECT_THAT(status.ToString(), HasSubstr(why));
  }
  static CollectiveOptions In(std::vector<int> group) {
    CollectiveOptions options;
    options.group = std::move(group);
    return options;
  }
};

TEST_P(ArgumentsTest, BuffersThatAreNotAsLargeAsTheCountsSayAreRefused) {
  Cluster cluster(2, GetParam());
  cluster.Run(1, [](int /*rank*/, Communicator& communicator) {
    const std::array<int64_t, 2> two{1, 1};
    Bytes four(4);
    Bytes eight(8);
    Bytes seven(7);
    Refused(communicator.AllReduce(seven, DType::kF32, ReduceOp::kSum, {}), "no whole number of");
    const std::string sizes = "for 1 and 2 elements of";
    Refused(communicator.ReduceScatter(seven, four, two, DType::kF32, ReduceOp::kSum, {}), sizes);
    Refused(communicator.ReduceScatter(eight, eight, two, DType::kF32, ReduceOp::kSum, {}), sizes);
    Refused(communicator.AllGather(eight, eight, two, DType::kF32, {}), sizes);
    Refused(communicator.AllGather(four, seven, two, DType::kF32, {}), sizes);
    const std::string exchange = "for 2 and 2 elements of";
    Refused(communicator.AllToAll(seven, two, eight, two, DType::kF32, {}), exchange);
    Refused(communicator.AllToAll(eight, two, seven, two, DType::kF32, {}), exchange);
    Refused(communicator.ReduceScatter(eight, four, std::array<int64_t, 1>{2}, DType::kF32,
                                       ReduceOp::kSum, {}),
            "");
    Refused(communicator.AllGather(four, eight, std::array<int64_t, 2>{-1, 3}, DType::kF32, {}),
            "");
  });
}

TEST_P(ArgumentsTest, APartOfAnElementOrAnotherTypeIsRefused) {
  Cluster cluster(2, GetParam());
  cluster.Run(1, [](int /*rank*/, Communicator& communicator) {
    TreeContributions contributions;
    contributions.nodes = {{{.level = 0, .index = 0}}, {{.level = 0, .index = 1}}};
    Bytes output(6);
    const std::vector<std::span<const std::byte>> mine{output};
    Refused(communicator.ReduceTree(contributions, mine, output, DType::kF32, {}),
            "6 bytes are no whole number of");
    const std::array<int64_t, 2> counts{1, 1};
    Refused(communicator.ReduceScatterTree(contributions, mine, std::span(output).first(4), counts,
                                           DType::kF32, {}),
            "a contribution of 6 bytes to a result of 8");
    Refused(communicator.ReduceScatterTree(contributions, std::vector<std::span<const std::byte>>{},
                                           std::span(output).first(4), counts, DType::kF32, {}),
            "0 values where the plan has other contributions");
    const std::array<int64_t, 2> other{2, 1};
    Bytes twelve(12);
    Refused(communicator.ReduceScatterTree(contributions, mine, twelve, other, DType::kF32, {}),
            "bytes for");
    for (const DType dtype : {DType::kBF16, DType::kI32, DType::kU8}) {
      Refused(communicator.ReduceTree(contributions, mine, output, dtype, {}),
              "a reproducible reduction of");
    }
  });
}

TEST_P(ArgumentsTest, WhatOneSendsItselfItAlsoTakes) {
  Cluster cluster(2, GetParam());
  cluster.Run(1, [](int rank, Communicator& communicator) {
    std::array<int64_t, 2> sent{1, 1};
    std::array<int64_t, 2> taken{1, 1};
    taken[static_cast<size_t>(rank)] = 2;
    const Bytes input(8);
    Bytes output(12);
    Refused(communicator.AllToAll(input, sent, output, taken, DType::kF32, {}),
            "1 elements to itself and 2 from itself");
  });
}

TEST_P(ArgumentsTest, ARootOutsideTheGroupIsRefused) {
  Cluster cluster(2, GetParam());
  cluster.Run(1, [](int /*rank*/, Communicator& communicator) {
    Bytes buffer(64);
    for (const int root : {-1, 2}) {
      Refused(communicator.Broadcast(buffer, root, {}), "in a group of 2");
    }
    for (const int root : {0, 1}) {
      EXPECT_TRUE(communicator.Broadcast(buffer, root, {}).ok());
    }
  });
}

TEST_P(ArgumentsTest, AGroupHoldsItsCallerAndNobodyTwice) {
  Cluster cluster(3, GetParam());
  cluster.Run(1, [](int rank, Communicator& communicator) {
    Bytes buffer(64);
    const auto reduce = [&](const std::vector<int>& group) {
      return communicator.AllReduce(buffer, DType::kF32, ReduceOp::kSum, In(group));
    };
    Refused(reduce({0, 1, 1, 2}), "rank 1 is twice in the collective's group");
    Refused(reduce({2, 0, 1, 2}), "rank 2 is twice in the collective's group");
    Refused(reduce({-1, 0, 1, 2}), "is not in the collective's group");
    Refused(reduce({0, 1, 2, 3}), "is not in the collective's group");
    Refused(reduce({3, 0, 1, 2}), "is not in the collective's group");
    Refused(reduce({2, 1, -1, 0}), "is not in the collective's group");
    const int other = (rank + 1) % 3;
    Refused(reduce({other}), "is not in the collective's group");
    EXPECT_TRUE(reduce({rank}).ok()) << "alone";
    EXPECT_TRUE(reduce({0, 1, 2}).ok());
    EXPECT_TRUE(reduce({2, 0, 1}).ok()) << "in any order";
  });
}

TEST_P(ArgumentsTest, LinksThatNoOneCanHaveAreRefusedByEverybody) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::pair<double, double> wrong[] = {{-1e-6, 1e9}, {infinity, 1e9},  {nan, 1e9}, {1e-6, 0},
                                             {1e-6, -1},   {1e-6, infinity}, {1e-6, nan}};
  Cluster cluster(2, GetParam());
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    uint64_t tag = 0;
    const auto options = [&] {
      CollectiveOptions with_tag;
      with_tag.tag = ++tag;
      return with_tag;
    };
    for (const auto& [latency, rate] : wrong) {
      std::vector<Link> own(2);
      own[1 - static_cast<size_t>(rank)].bytes_per_second = 2e9;
      if (rank == 1) {
        own[0].latency_seconds = latency;
        own[0].bytes_per_second = rate;
      }
      Refused(communicator.ShareLinks(own, options()), "worker-1 to worker-0");
      const LinkEnd end{.link = own[1 - static_cast<size_t>(rank)], .host = "host"};
      Refused(communicator.ShareLinkEnd(end, {}, {}, options()), "worker-1");
      EXPECT_EQ(communicator.links(), nullptr);
    }
    std::vector<Link> own(2);
    own[static_cast<size_t>(rank)].bytes_per_second = nan;  // To itself: nobody looks at it.
    own[1 - static_cast<size_t>(rank)] = {
        .latency_seconds = 0, .bytes_per_second = 1e9 * (rank + 1), .crowding = 0.25};
    Refused(communicator.ShareLinks(std::span(own).first(1), options()), "1 links of one of 2");
    Refused(communicator.ShareLinks(own, In({0, 1})), "2 links");
    Refused(communicator.ShareLinkEnd({}, {}, {}, In({0, 1})), "all members of the generation");
    ASSERT_TRUE(communicator.ShareLinks(own, options()).ok());
    const auto links = communicator.links();
    ASSERT_NE(links, nullptr);
    EXPECT_EQ(links->At(0, 1).latency_seconds, 0);
    EXPECT_EQ(links->At(0, 1).bytes_per_second, 1e9);
    EXPECT_EQ(links->At(1, 0).bytes_per_second, 2e9);
    EXPECT_GE(links->At(0, 1).crowding, 1) << "as it is counted, not as it was said";
    EXPECT_EQ(links->At(0, 1).crowding, links->At(1, 0).crowding);
  });
}

// As many as there are workers for each core of their host, and never less than one.
TEST_P(ArgumentsTest, LinksAreAsCrowdedAsTheirHost) {
  Cluster cluster(3, GetParam());
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    const double crowding = std::max(1.0, 3.0 / Cores());
    const std::vector<Link> own(3);
    ASSERT_TRUE(communicator.ShareLinks(own, {}).ok());
    EXPECT_EQ(communicator.links()->At(0, 1).crowding, crowding);
    CollectiveOptions again;
    again.tag = 1;
    const Link link{.latency_seconds = 1e-6 * (rank + 1), .bytes_per_second = 1e9};
    ASSERT_TRUE(communicator.ShareLinkEnd({.link = link, .host = "h"}, {}, {}, again).ok());
    EXPECT_EQ(communicator.links()->At(1, 2).crowding, crowding);
    EXPECT_EQ(communicator.links()->At(1, 0).latency_seconds, 2e-6) << "the slower end's";
    EXPECT_EQ(communicator.links()->At(1, 2).latency_seconds, 3e-6);
  });
}

INSTANTIATE_TEST_SUITE_P(Media,
                         ArgumentsTest,
                         testing::Values(Media::kShm, Media::kTcp),
                         [](const auto& parameter) { return MediaName(parameter.param); });

// Of what goes through memory that all share no frame tells the size: what a message would have
// carried is counted. Unlike shares, so that no two of these figures are the same.
TEST(SharedTrafficTest, WhatTheOthersReadIsCountedAsSent) {
  constexpr int64_t kElement = 4;
  const std::vector<int64_t> counts{300'000, 200'000, 500'000};
  Cluster cluster(3, Media::kShm);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    const auto own = static_cast<size_t>(rank);
    Bytes share(static_cast<size_t>(counts[own] * kElement));
    Bytes whole(1'000'000 * kElement);
    uint64_t tag = 0;
    const auto sent_by = [&](const auto& call) {
      const std::vector<int64_t> before = communicator.BytesSent();
      CollectiveOptions options;
      options.tag = ++tag;
      const Status status = call(options);
      EXPECT_TRUE(status.ok()) << status.ToString();
      std::vector<int64_t> sent = communicator.BytesSent();
      for (size_t peer = 0; peer < sent.size(); ++peer) {
        sent[peer] -= before[peer];
      }
      return sent;
    };
    const auto expect = [&](const std::vector<int64_t>& sent, const auto& bytes) {
      for (size_t peer = 0; peer < sent.size(); ++peer) {
        if (peer != own) {
          EXPECT_NEAR(static_cast<double>(sent[peer]), static_cast<double>(bytes(peer)), 4096)
              << rank << " to " << peer;
        }
      }
    };
    EXPECT_TRUE(communicator.Barrier({}).ok());
    expect(sent_by([&](const CollectiveOptions& options) {
             return communicator.AllGather(share, whole, counts, DType::kF32, options);
           }),
           [&](size_t) { return counts[own] * kElement; });
    expect(sent_by([&](const CollectiveOptions& options) {
             return communicator.ReduceScatter(whole, share, counts, DType::kF32, ReduceOp::kSum,
                                               options);
           }),
           [&](size_t peer) { return counts[peer] * kElement; });
    expect(sent_by([&](const CollectiveOptions& options) {
             return communicator.Broadcast(whole, 1, options);
           }),
           [&](size_t) { return rank == 1 ? 1'000'000 * kElement : 0; });
    expect(sent_by([&](const CollectiveOptions& options) {
             return communicator.AllReduce(whole, DType::kF32, ReduceOp::kSum, options);
           }),
           [&](size_t) { return 2 * 1'000'000 * kElement / 3; });
  });
}

}  // namespace
}  // namespace heddle::comm
