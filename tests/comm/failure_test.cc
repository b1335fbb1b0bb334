// What goes wrong: lost peers, aborts, deadlines, strangers, old generations.
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include "comm/transport/traffic_class.h"
#include "tests/comm/cluster.h"
#include "tests/comm/processes.h"
#include "tests/comm/wires.h"

namespace heddle::comm {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class FailureTest : public testing::TestWithParam<Media> {};

TEST_P(FailureTest, WaitEndsAtItsDeadlineAndNamesThePeer) {
  Cluster cluster(2, GetParam());
  cluster.Run(1, [](int rank, Communicator& communicator) {
    if (rank == 0) {
      std::vector<float> buffer(4);
      const Time began = Now();
      const Status status =
          communicator.Recv(1, 7, RawOf(buffer), false).Wait(After(milliseconds(50)));
      EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
      EXPECT_THAT(status.message(), HasSubstr("worker-1"));
      EXPECT_LT(Now() - began, kAmple) << "its own deadline, not the group's";
      // A large send that nobody receives, and a collective that the peer does not join.
      const Bytes large(1 << 20);
      EXPECT_EQ(communicator.Send(1, 8, large, false).Wait(After(milliseconds(20))).code(),
                StatusCode::kDeadlineExceeded);
      const Status barrier =
          communicator.Barrier({.group = {}, .tag = 1, .deadline = After(milliseconds(20))});
      EXPECT_EQ(barrier.code(), StatusCode::kDeadlineExceeded);
      EXPECT_THAT(barrier.message(), HasSubstr("worker-1"));
    }
    // The pair still works for other messages.
    EXPECT_TRUE(communicator.Barrier({.group = {}, .tag = 2, .deadline = {}}).ok());
  });
}

// Every wait here would last for a minute.
TEST_P(FailureTest, AbortEndsEveryWaitHereAndAtThePeers) {
  Cluster cluster(3, GetParam());
  std::atomic<int> losses{0};
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    communicator.OnPeerLost([&](int, const Status&) { losses.fetch_add(1); });
    std::vector<float> buffer(4);
    const Bytes large(8 << 20);
    // Whoever has not formed the group yet would learn of its end only.
    EXPECT_TRUE(communicator.Barrier({}).ok());
    if (rank != 0) {
      const Status status = communicator.Recv(0, 5, RawOf(buffer), false).Wait();
      EXPECT_EQ(status.code(), StatusCode::kAborted) << status.ToString();
      EXPECT_THAT(status.message(), HasSubstr("worker-0"));
      EXPECT_THAT(status.message(), HasSubstr("the plan changed"));
      return;
    }
    std::vector<std::thread> waiters;
    std::atomic<int> ready{0};
    const auto wait = [&](size_t i, const std::function<Status()>& operation) {
      waiters.emplace_back([&, i, operation] {
        ready.fetch_add(1);
        const Status status = operation();
        EXPECT_EQ(status.code(), StatusCode::kAborted) << i << ": " << status.ToString();
        EXPECT_THAT(status.message(), HasSubstr("the plan changed"));
      });
    };
    wait(0, [&] { return communicator.Recv(1, 1, RawOf(buffer), true).Wait(); });
    wait(1, [&] { return communicator.Send(2, 2, large, false).Wait(); });
    wait(2, [&] { return communicator.Barrier({.group = {}, .tag = 3, .deadline = {}}); });
    Bytes copy = large;
    const Bytes record(200000);
    wait(3, [&] {
      return communicator.AllReduce(copy, DType::kF32, ReduceOp::kSum,
                                    {.group = {}, .tag = 4, .deadline = {}});
    });
    wait(4, [&] {
      return communicator.AllGatherBytes(record, {.group = {}, .tag = 5, .deadline = {}}).status();
    });
    while (ready.load() < 5) {
      std::this_thread::yield();
    }
    ComesToWait(cluster.endpoint(0), 1);
    communicator.Abort(UnavailableError("the plan changed"));
    communicator.Abort(UnavailableError("twice is once"));
    for (auto& waiter : waiters) {
      waiter.join();
    }
    EXPECT_EQ(communicator.Recv(1, 9, RawOf(buffer), false).Wait().code(), StatusCode::kAborted);
  });
  EXPECT_EQ(losses.load(), 0) << "an abort is not a loss";
}

TEST_P(FailureTest, FenceAbortsOldGenerationsAndCancelsTheirConnects) {
  Cluster cluster(2, GetParam());
  // Rank 1 never connects; rank 0 waits for it until the fence.
  auto connecting = std::async(std::launch::async, [&] {
    return cluster.endpoint(0).Connect(cluster.Options(0, 3), After(kAmple)).status();
  });
  ComesToWait(cluster.endpoint(0), 3);
  cluster.endpoint(0).Fence(4);
  EXPECT_EQ(connecting.get().code(), StatusCode::kAborted);
  EXPECT_EQ(cluster.endpoint(0).Connect(cluster.Options(0, 3), After(kAmple)).status().code(),
            StatusCode::kAborted);
  cluster.Run(4, [](int /*rank*/, Communicator& communicator) {
    EXPECT_TRUE(communicator.Barrier({}).ok());
  });
}

/// The connected TCP sockets of this process.
std::vector<int> ConnectedSockets() {
  std::vector<int> sockets;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof(peer);
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
        peer.sin_family == AF_INET) {
      sockets.push_back(fd);
    }
  }
  return sockets;
}

// Whichever of a pair's connections breaks, and at whichever end, both members lose each other,
// once, and all that they wait for from each other ends.
TEST(TrafficClassTest, OneThatBreaksEndsThePair) {
  Cluster cluster(2, Media::kTcp);
  constexpr size_t kEnds = 2 * kTrafficClasses;
  for (size_t broken = 0; broken < kEnds; ++broken) {
    std::array<std::atomic<int>, 2> losses{};
    std::atomic<int> there = 0;
    cluster.Run(static_cast<int64_t>(broken) + 1, [&](int rank, Communicator& communicator) {
      communicator.OnPeerLost(
          [&losses, rank](int, const Status&) { losses[static_cast<size_t>(rank)].fetch_add(1); });
      std::array<Bytes, kTrafficClasses> in{Bytes(8), Bytes(1 << 20)};
      std::vector<Work> works;
      for (const bool urgent : {true, false}) {
        for (size_t i = 0; i < in.size(); ++i) {
          works.push_back(communicator.Recv(1 - rank, 5 + i, in[i], urgent));
        }
      }
      there.fetch_add(1);
      while (there.load() < 2) {
        std::this_thread::yield();
      }
      if (rank == 0) {
        const std::vector<int> sockets = ConnectedSockets();
        ASSERT_EQ(sockets.size(), kEnds);
        ASSERT_EQ(::shutdown(sockets[broken], SHUT_RDWR), 0);
      }
      for (const Work& work : works) {
        const Status status = work.Wait();
        EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
        EXPECT_THAT(status.message(), HasSubstr(Cluster::Name(1 - rank) + " was lost"));
      }
    });
    const Time deadline = After(kAmple);
    while (!ConnectedSockets().empty() && Now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_EQ(losses[0].load(), 1) << broken;
    EXPECT_EQ(losses[1].load(), 1) << broken;
  }
}

TEST_P(FailureTest, ManyGenerationsInOneProcessLeaveNothingBehind) {
  const auto count = [](const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder),
                         std::filesystem::directory_iterator());
  };
  Cluster cluster(3, GetParam());
  const auto descriptors = count("/proc/self/fd");
  const auto threads = count("/proc/self/task");
  for (int64_t generation = 1; generation <= 12; ++generation) {
    cluster.Run(generation, [generation](int rank, Communicator& communicator) {
      std::vector<float> buffer(1000, 1.0F);
      EXPECT_TRUE(communicator.AllReduce(RawOf(buffer), DType::kF32, ReduceOp::kSum, {}).ok());
      EXPECT_EQ(buffer[0], 3.0F);
      if (generation % 2 == 0 && rank == 1) {
        communicator.Abort(AbortedError("generation {} ends", generation));
      }
    });
    // Closed connections stay until the peer has read the news, which is soon.
    const Time deadline = After(kAmple);
    // A thread that was joined is seen there for a moment, too.
    while ((count("/proc/self/fd") > descriptors || count("/proc/self/task") > threads) &&
           Now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_EQ(count("/proc/self/fd"), descriptors) << "generation " << generation;
    EXPECT_EQ(count("/proc/self/task"), threads);
  }
}

struct Report {
  int code = 0;
  int lost_peer = -1;
  char message[160] = {};
};

// Collectives for ever: a loss interrupts one of them somewhere.
int ReduceUntilALoss(Communicator& group, int out) {
  std::atomic<int> lost{-1};
  group.OnPeerLost([&](int peer, const Status&) { lost.store(peer); });
  Report report;
  Processes::Write(out, report);  // Connected.
  std::vector<float> buffer(300000, 1.0F);
  Status status;
  for (uint64_t tag = 0; status.ok(); ++tag) {
    status = group.AllReduce(RawOf(buffer), DType::kF32, ReduceOp::kMax,
                             {.group = {}, .tag = tag, .deadline = After(kAmple)});
    if (!status.ok() && status.code() == StatusCode::kUnavailable && lost.load() < 0) {
      return 4;
    }
  }
  report.code = static_cast<int>(status.code());
  report.lost_peer = lost.load();
  std::strncpy(report.message, status.message().c_str(), sizeof(report.message) - 1);
  group.Abort(status);
  Processes::Write(out, report);
  Processes::StayUntilDismissed();
  return 0;
}

// In the middle of collectives that would wait for a minute.
TEST_P(FailureTest, SurvivorsOfAKilledWorkerFailAndNameIt) {
  constexpr int kSize = 4;
  constexpr int kVictim = 2;
  Processes processes(kSize, GetParam(), [](int, Endpoint&, Communicator& group, int out) {
    return ReduceUntilALoss(group, out);
  });
  for (int rank = 0; rank < kSize; ++rank) {
    (void)processes.Read<Report>(rank);
  }
  processes.Signal(kVictim, SIGKILL);
  int named = 0;
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == kVictim) {
      continue;
    }
    const auto report = processes.Read<Report>(rank);
    // A survivor may hear of the abort of one that saw the loss before it needs the lost peer
    // itself.
    if (report.code == static_cast<int>(StatusCode::kUnavailable)) {
      EXPECT_THAT(report.message, HasSubstr(Cluster::Name(kVictim)));
      EXPECT_EQ(report.lost_peer, kVictim);
      ++named;
    } else {
      EXPECT_EQ(report.code, static_cast<int>(StatusCode::kAborted)) << report.message;
      EXPECT_THAT(report.message, HasSubstr(Cluster::Name(kVictim)));
    }
  }
  EXPECT_GE(named, 1);
  processes.Dismiss();
  for (int rank = 0; rank < kSize; ++rank) {
    EXPECT_EQ(processes.Wait(rank), rank == kVictim ? -1 : 0) << "rank " << rank;
  }
}

/// Passes descriptors to a process that has just ended, which nothing else has found out.
struct NobodyThere final : DescriptorPassing {
  pid_t peer_process() const override { return 0; }
  Status Send(uint64_t /*id*/, int /*fd*/) override {
    ++tries;
    return UnavailableError("handing over a descriptor: Broken pipe");
  }
  Result<UniqueFd> Take(uint64_t /*id*/) override { return UnavailableError("none has come"); }

  std::atomic<int> tries = 0;
};

// The connection's end does, after the news of the loss: the first member, which hands a segment
// out, would else return a loss that nobody was told of.
TEST(SegmentTest, ADescriptorThatFindsNobodyEndsNoCall) {
  NobodyThere nobody;
  const auto fate = std::make_shared<WireFate>();
  fate->descriptors = &nobody;
  WiredGroup group(2, kAmple, [&](int /*from*/, int /*to*/) { return fate; });
  std::vector<std::thread> members;
  for (const int rank : {0, 1}) {
    members.emplace_back([&, rank] {
      std::vector<float> buffer(1000, 1.0F);
      const Status status =
          group.of(rank).AllReduce(RawOf(buffer), DType::kF32, ReduceOp::kSum, {});
      EXPECT_TRUE(status.ok()) << rank << ": " << status.ToString();
      EXPECT_EQ(buffer[0], 2.0F);
    });
  }
  for (std::thread& member : members) {
    member.join();
  }
  EXPECT_EQ(nobody.tries.load(), 1);
}

TEST_P(FailureTest, MessagesOfDisagreeingSizesFailAtTheReceiver) {
  Cluster cluster(2, GetParam());
  cluster.Run(1, [](int rank, Communicator& communicator) {
    const std::vector<std::pair<size_t, size_t>> sizes{
        {8, 4}, {0, 4}, {1 << 20, 4}, {4, 1 << 20}, {1 << 20, 1 << 19}};
    for (size_t i = 0; i < sizes.size(); ++i) {
      for (const bool early : {true, false}) {
        const uint64_t tag = 2 * i + (early ? 1 : 0);
        Bytes bytes(rank == 0 ? sizes[i].first : sizes[i].second);
        if (rank == 0) {
          const Work send = communicator.Send(1, tag, bytes, false);
          if (early) {
            EXPECT_TRUE(communicator.Barrier({.group = {}, .tag = tag, .deadline = {}}).ok());
          }
          const Status status = send.Wait();
          EXPECT_EQ(status.code(),
                    sizes[i].first > 65536 ? StatusCode::kInvalidArgument : StatusCode::kOk);
        } else {
          if (early) {
            EXPECT_TRUE(communicator.Barrier({.group = {}, .tag = tag, .deadline = {}}).ok());
          }
          EXPECT_EQ(communicator.Recv(0, tag, bytes, false).Wait().code(),
                    StatusCode::kInvalidArgument)
              << i << early;
        }
      }
    }
    EXPECT_TRUE(communicator.Barrier({}).ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Media,
                         FailureTest,
                         testing::ValuesIn(MediaHere({.mixed = true, .tls = true})),
                         [](const auto& parameter) { return MediaName(parameter.param); });

}  // namespace
}  // namespace heddle::comm
