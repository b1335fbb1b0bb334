// Collectives that were started: how many run at once, what ends them, and that an urgent one never
// waits for one that is not.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "tests/comm/cluster.h"
#include "tests/comm/elements.h"
#include "tests/comm/operations.h"

namespace heddle::comm {
namespace {

constexpr int kAtOnce = 4;  ///< Calls of a traffic class that run at once.

std::vector<int> Everyone(int size) {
  std::vector<int> ranks;
  for (int i = 0; i < size; ++i) {
    ranks.push_back(i);
  }
  return ranks;
}

int32_t Given(uint64_t salt, int rank, size_t i) {
  return static_cast<int32_t>(ElementOf(salt, rank, static_cast<int64_t>(i)));
}

int32_t Sum(uint64_t salt, const std::vector<int>& group, size_t i) {
  int32_t sum = 0;
  for (const int rank : group) {
    sum += Given(salt, rank, i);
  }
  return sum;
}

/// A sum, a scatter and a gather that a member starts, with buffers of their own.
class Started {
 public:
  Started(Communicator& communicator, std::vector<int> group, size_t elements, uint64_t tag)
      : communicator_(communicator),
        group_(std::move(group)),
        tag_(tag),
        counts_(SharesOf(static_cast<int64_t>(elements), static_cast<int>(group_.size()))) {
    for (int position = 0; group_[static_cast<size_t>(position)] != communicator.rank();
         ++position) {
      first_ += static_cast<size_t>(counts_[static_cast<size_t>(position)]);
      ++position_;
    }
    for (size_t i = 0; i < elements; ++i) {
      given_.push_back(Given(tag, communicator.rank(), i));
    }
    sum_ = given_;
    share_.resize(static_cast<size_t>(counts_[position_]));
    gathered_.resize(elements);
  }
  /// After a failure, too, nobody uses the buffers any more.
  ~Started() {
    for (const Work& work : works_) {
      work.Wait().IgnoreError("Finish has checked it");
    }
  }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  void StartSum(bool urgent) {
    Start(urgent, [this](const CollectiveOptions& options) {
      return communicator_.AllReduce(RawOf(sum_), DType::kI32, ReduceOp::kSum, options);
    });
  }
  void StartScatter(bool urgent) {
    Start(urgent, [this](const CollectiveOptions& options) {
      return communicator_.ReduceScatter(RawOf(std::as_const(given_)), RawOf(share_), counts_,
                                         DType::kI32, ReduceOp::kSum, options);
    });
  }
  void StartGather(bool urgent) {
    Start(urgent, [this](const CollectiveOptions& options) {
      const auto own = RawOf(std::as_const(given_)).subspan(first_ * 4, share_.size() * 4);
      return communicator_.AllGather(own, RawOf(gathered_), counts_, DType::kI32, options);
    });
  }

  /// Waits for all, and checks the results of those that were started.
  void Finish() {
    for (const Work& work : works_) {
      const Status status = work.Wait();
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
    for (size_t i = 0; i < sum_.size(); ++i) {
      ASSERT_EQ(sum_[i], Sum(tag_, group_, i)) << i;
    }
    for (size_t i = 0; works_.size() > 1 && i < share_.size(); ++i) {
      ASSERT_EQ(share_[i], Sum(tag_, group_, first_ + i)) << i;
    }
    size_t at = 0;
    for (size_t member = 0; works_.size() > 2 && member < group_.size(); ++member) {
      for (int64_t i = 0; i < counts_[member]; ++i, ++at) {
        ASSERT_EQ(gathered_[at], Given(tag_, group_[member], at)) << at;
      }
    }
  }

 private:
  template <typename Call>
  void Start(bool urgent, Call call) {
    const CollectiveOptions options{
        .group = group_, .tag = tag_ + works_.size(), .deadline = {}, .urgent = urgent};
    works_.push_back(communicator_.Start([call, options] { return call(options); }, urgent));
  }

  Communicator& communicator_;
  const std::vector<int> group_;
  const uint64_t tag_;
  const std::vector<int64_t> counts_;
  size_t position_ = 0;
  size_t first_ = 0;  ///< Of this member's share.
  std::vector<int32_t> given_;
  std::vector<int32_t> sum_;
  std::vector<int32_t> share_;
  std::vector<int32_t> gathered_;
  std::vector<Work> works_;
};

/// As many sums as run at once, which keep the threads of bulk busy.
class BusyReductions {
 public:
  BusyReductions(Communicator& communicator, const std::vector<int>& group) {
    for (uint64_t i = 0; i < kAtOnce; ++i) {
      // Small ones and such as a step has.
      sums_.push_back(std::make_unique<Started>(communicator, group, i % 2 == 0 ? 500 : 300000,
                                                1000 + 100 * i));
    }
  }
  void Start() {
    for (const auto& sum : sums_) {
      sum->StartSum(/*urgent=*/false);
    }
  }
  void Finish() {
    for (const auto& sum : sums_) {
      ASSERT_NO_FATAL_FAILURE(sum->Finish());
    }
  }

 private:
  std::vector<std::unique_ptr<Started>> sums_;
};

void StartExchanges(Started& exchanges) {
  exchanges.StartSum(/*urgent=*/true);
  exchanges.StartScatter(/*urgent=*/true);
  exchanges.StartGather(/*urgent=*/true);
}

struct Case {
  Media media;
  int size;
};

class UrgentTest : public ::testing::TestWithParam<Case> {};

// The first member's reductions wait for the others, which make theirs after the exchanges.
TEST_P(UrgentTest, ExchangesEndWhileFourReductionsOfTheGroupWait) {
  Cluster cluster(GetParam().size, GetParam().media);
  const std::vector<int> group = Everyone(cluster.size());
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    BusyReductions busy(communicator, group);
    Started small(communicator, group, 4000, 10);
    Started large(communicator, group, 700000, 20);
    if (rank == 0) {
      busy.Start();
    }
    StartExchanges(small);
    StartExchanges(large);
    ASSERT_NO_FATAL_FAILURE(small.Finish());
    ASSERT_NO_FATAL_FAILURE(large.Finish());
    if (rank != 0) {
      busy.Start();
    }
    ASSERT_NO_FATAL_FAILURE(busy.Finish());
  });
}

class UrgentAcrossTest : public ::testing::TestWithParam<Media> {};

// Ranks 0 and 1 run a stage together, rank 2 one of another pipeline. Rank 0 has nothing to compute
// before its reductions with rank 2, and rank 2 waits for what rank 1 has after the exchange.
TEST_P(UrgentAcrossTest, ExchangesEndWhileFourReductionsWaitForAnotherPipeline) {
  Cluster cluster(3, GetParam());
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    const std::vector<int> across = {0, 2};
    const std::vector<int> stage = {1, 0};
    std::vector<int32_t> activation(4000, 7);
    if (rank == 2) {
      activation.assign(activation.size(), 0);
      ASSERT_TRUE(communicator.Recv(1, 5, RawOf(activation), true).Wait().ok());
      ASSERT_EQ(activation.back(), 7);
      BusyReductions busy(communicator, across);
      busy.Start();
      busy.Finish();
      return;
    }
    Started exchanges(communicator, stage, 4000, 10);
    if (rank == 1) {
      StartExchanges(exchanges);
      ASSERT_NO_FATAL_FAILURE(exchanges.Finish());
      ASSERT_TRUE(communicator.Send(2, 5, RawOf(activation), true).Wait().ok());
      return;
    }
    BusyReductions busy(communicator, across);
    busy.Start();
    StartExchanges(exchanges);
    ASSERT_NO_FATAL_FAILURE(exchanges.Finish());
    busy.Finish();
  });
}

class StartedTest : public ::testing::TestWithParam<bool> {};

TEST_P(StartedTest, ADeadlineEndsTheGroupAndGivesTheBufferBack) {
  Cluster cluster(2, Media::kTcp);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    if (rank == 1) {  // Comes to no collective.
      Bytes none;
      const Status status = communicator.Recv(0, 5, none, false).Wait();
      EXPECT_EQ(status.code(), StatusCode::kAborted) << status.ToString();
      return;
    }
    Bytes buffer(1 << 20);
    std::vector<Work> works;
    for (uint64_t tag = 0; tag < 6; ++tag) {  // More than run at once.
      works.push_back(communicator.Start(
          [&communicator, tag] {
            return communicator.Barrier({.group = {}, .tag = tag, .deadline = {}});
          },
          GetParam()));
    }
    const Work work = communicator.Start(
        [&] {
          return communicator.AllReduce(buffer, DType::kF32, ReduceOp::kSum,
                                        {.group = {}, .tag = 9, .deadline = {}});
        },
        GetParam());
    EXPECT_FALSE(work.Done());
    EXPECT_EQ(work.Wait(After(std::chrono::milliseconds(50))).code(),
              StatusCode::kDeadlineExceeded);
    for (const Work& other : works) {
      EXPECT_EQ(other.Wait(After(kAmple)).code(), StatusCode::kAborted);
    }
  });
}

// Each call waits until there are as many as may run: fewer threads would never end.
TEST_P(StartedTest, FourCallsRunAtOnceAndNoMore) {
  Cluster cluster(1, Media::kTcp);
  cluster.Run(1, [](int /*rank*/, Communicator& communicator) {
    std::atomic<int> running = 0;
    std::atomic<int> most = 0;
    std::atomic<bool> met = false;
    std::vector<Work> works;
    for (int i = 0; i < 3 * kAtOnce; ++i) {
      works.push_back(communicator.Start(
          [&] {
            const int now = ++running;
            for (int seen = most.load(); seen < now && !most.compare_exchange_weak(seen, now);) {
            }
            met.store(met.load() || now == kAtOnce);
            while (!met.load()) {
              std::this_thread::yield();
            }
            --running;
            return Status::Ok();
          },
          GetParam()));
    }
    for (const Work& work : works) {
      EXPECT_TRUE(work.Wait(After(kAmple)).ok());
    }
    EXPECT_EQ(most.load(), kAtOnce);
  });
}

// The threads that have served one look for the next only once in a second by themselves: so many
// calls that nobody is woken for take longer than this test may.
TEST_P(StartedTest, ACallThatIsStartedWakesWhoServesIt) {
  Cluster cluster(1, Media::kTcp);
  cluster.Run(1, [](int /*rank*/, Communicator& communicator) {
    for (int i = 0; i < 1000; ++i) {
      const Work work = communicator.Start([] { return Status::Ok(); }, GetParam());
      ASSERT_TRUE(work.Wait(After(kAmple)).ok());
    }
  });
}

TEST_P(StartedTest, ClosingEndsWhatWasStarted) {
  Cluster cluster(2, Media::kShm);
  std::vector<Work> works;
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    for (uint64_t tag = 0; rank == 0 && tag < 6; ++tag) {
      works.push_back(communicator.Start(
          [&communicator, tag] {
            return communicator.Barrier({.group = {}, .tag = tag, .deadline = {}});
          },
          GetParam()));
    }
  });
  for (const Work& work : works) {
    ASSERT_TRUE(work.Done());
    EXPECT_FALSE(work.Wait().ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Urgency, StartedTest, ::testing::Bool(), [](const auto& parameter) {
  return std::string(parameter.param ? "Urgent" : "Bulk");
});

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const Media& media : MediaHere({.mixed = true, .tls = true})) {
    for (const int size : {2, 3, 5}) {
      cases.push_back({media, size});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(
    Media, UrgentTest, ::testing::ValuesIn(AllCases()), [](const auto& parameter) {
      return MediaName(parameter.param.media) + std::to_string(parameter.param.size);
    });

INSTANTIATE_TEST_SUITE_P(Media,
                         UrgentAcrossTest,
                         ::testing::ValuesIn(MediaHere({.mixed = true, .tls = true})),
                         [](const auto& parameter) { return MediaName(parameter.param); });

}  // namespace
}  // namespace heddle::comm
