// What only RDMA has: limits on locked memory, forks, queue pairs and links that break,
// registrations that must not leak. Runs where HEDDLE_TEST_RDMA names a device that nobody else
// uses: in a guest of scripts/rdma-vm.
#include <array>
#include <cstdio>
#include <fstream>
#include <future>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "comm/lane.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

class VerbsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (RdmaDevice().empty()) {
      GTEST_SKIP() << "HEDDLE_TEST_RDMA names no device";
    }
  }
};

double Count(metrics::Registry& registry, const std::string& name, const std::string& transport) {
  double sum = 0;
  for (const auto& family : registry.Collect()) {
    for (const auto& sample : family.samples) {
      if (family.name == name && sample.labels.at("transport") == transport) {
        sum += sample.value;
      }
    }
  }
  return sum;
}

std::string OutputOf(const std::string& command) {
  std::string output;
  std::array<char, 4096> buffer{};
  FILE* pipe = ::popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  for (size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    output.append(buffer.data(), got);
  }
  EXPECT_EQ(::pclose(pipe), 0) << command;
  return output;
}

/// Objects of a kind ("mr", "qp" …) that the device holds for all processes.
int Objects(const std::string& kind) {
  const std::string text = OutputOf("rdma resource show " + RdmaDevice());
  std::smatch found;
  EXPECT_TRUE(std::regex_search(text, found, std::regex(" " + kind + " (\\d+)"))) << text;
  return found.empty() ? -1 : std::stoi(found[1]);
}

TEST_F(VerbsTest, BytesAreCountedAsVerbs) {
  Cluster cluster(2, Media::kVerbs);
  cluster.Run(1, [](int rank, Communicator& communicator) {
    Bytes bytes(1 << 20);
    ASSERT_TRUE(
        (rank == 0 ? communicator.Send(1, 1, bytes, false) : communicator.Recv(0, 1, bytes, false))
            .Wait()
            .ok());
    ASSERT_TRUE(communicator.Barrier({}).ok());
  });
  EXPECT_GE(Count(cluster.registry(0), "heddle_comm_sent_bytes_total", "verbs"), 1 << 20);
  EXPECT_EQ(Count(cluster.registry(0), "heddle_comm_sent_bytes_total", "tcp"), 0);
  EXPECT_EQ(Count(cluster.registry(0), "heddle_comm_fallbacks_total", "verbs"), 0);
}

// Messages of every size around the pieces, the ring and the credit, both ways at once.
TEST_F(VerbsTest, StreamsOfAllSizesArriveWholeInBothDirections) {
  Cluster cluster(2, Media::kVerbs);
  cluster.Run(1, [](int rank, Communicator& communicator) {
    std::vector<size_t> sizes;
    for (const size_t middle : {1U << 16, 1U << 17, 1U << 18, 1U << 20, 3U << 20}) {
      for (const size_t size : {middle - 49, middle - 48, middle - 1, middle + 0, middle + 1}) {
        sizes.push_back(size);
      }
    }
    for (size_t i = 0; i < 600; ++i) {
      sizes.push_back(i % 57);  // More than the receives that are posted.
    }
    std::vector<Bytes> outgoing(sizes.size());
    std::vector<Bytes> incoming(sizes.size());
    std::vector<Work> works;
    for (size_t i = 0; i < sizes.size(); ++i) {
      outgoing[i].resize(sizes[i]);
      for (size_t at = 0; at < sizes[i]; ++at) {
        outgoing[i][at] = static_cast<std::byte>(at * 31 + i * 7 + static_cast<size_t>(rank));
      }
      incoming[i].resize(sizes[i]);
      works.push_back(communicator.Recv(1 - rank, i, incoming[i], i % 3 == 0));
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      works.push_back(communicator.Send(1 - rank, i, outgoing[i], i % 3 == 0));
    }
    for (const Work& work : works) {
      ASSERT_TRUE(work.Wait().ok());
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      bool same = true;
      for (size_t at = 0; at < sizes[i]; ++at) {
        same = same && incoming[i][at] ==
                           static_cast<std::byte>(at * 31 + i * 7 + static_cast<size_t>(1 - rank));
      }
      EXPECT_TRUE(same) << sizes[i];
    }
    ASSERT_TRUE(communicator.Barrier({}).ok());
  });
}

TEST_F(VerbsTest, NothingStaysRegisteredAfterAGroupHasEnded) {
  Cluster cluster(3, Media::kVerbs);
  const int pairs = Objects("qp");
  const int regions = Objects("mr");
  for (int64_t generation = 1; generation <= 8; ++generation) {
    cluster.Run(generation, [&](int rank, Communicator& communicator) {
      std::vector<float> buffer(100000, 1.0F);
      EXPECT_TRUE(communicator.AllReduce(RawOf(buffer), DType::kF32, ReduceOp::kSum, {}).ok());
      if (rank == 0) {
        EXPECT_EQ(Objects("qp"), pairs + 6 * static_cast<int>(kLanes));
        EXPECT_EQ(Objects("mr"), regions + 12 * static_cast<int>(kLanes));
      }
      EXPECT_TRUE(communicator.Barrier({}).ok());
      if (generation % 2 == 0 && rank == 1) {
        communicator.Abort(AbortedError("generation {} ends", generation));
      }
    });
    const Time deadline = After(seconds(3));
    while ((Objects("mr") > regions || Objects("qp") > pairs) && Now() < deadline) {
    }
    EXPECT_EQ(Objects("mr"), regions) << generation;
    EXPECT_EQ(Objects("qp"), pairs) << generation;
  }
}

TEST_F(VerbsTest, ALinkThatGoesDownIsNamedAtOnceAndTheNextGenerationForms) {
  Cluster cluster(3, Media::kVerbs);
  Duration slowest{};
  std::atomic<Time> cut{Time()};
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    std::vector<float> buffer(300000, 1.0F);
    Status status;
    for (uint64_t tag = 0; status.ok(); ++tag) {
      if (rank == 0 && tag == 3) {
        cut.store(Now());
        OutputOf("ip link set eth0 down");
      }
      status = communicator.AllReduce(RawOf(buffer), DType::kF32, ReduceOp::kMax,
                                      {.group = {}, .tag = tag, .deadline = After(seconds(10))});
    }
    EXPECT_TRUE(status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kAborted)
        << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("worker-"));
    EXPECT_LT(Now() - cut.load(), milliseconds(1500)) << status.ToString();
    communicator.Abort(status);
  });
  OutputOf("ip link set eth0 up");
  // The device's address comes back a moment after the link.
  Status formed = UnavailableError("not tried");
  for (int64_t generation = 2; generation < 20 && !formed.ok(); ++generation) {
    std::vector<std::future<Status>> members;
    for (int rank = 0; rank < 3; ++rank) {
      members.push_back(std::async(std::launch::async, [&cluster, rank, generation] {
        auto group =
            cluster.endpoint(rank).Connect(cluster.Options(rank, generation), After(seconds(3)));
        if (!group.ok()) {
          return group.status();
        }
        const std::string transport = (*group)->transport(rank == 0 ? 1 : 0);
        const Status barrier = (*group)->Barrier({});
        return transport == "verbs" ? barrier : UnavailableError("over {}", transport);
      }));
    }
    formed = Status::Ok();
    for (auto& member : members) {
      const Status status = member.get();
      formed = formed.ok() ? status : formed;
    }
  }
  EXPECT_TRUE(formed.ok()) << formed.ToString();
}

TEST_F(VerbsTest, AForkWhileMemoryIsRegisteredChangesNothing) {
  Cluster cluster(2, Media::kVerbs);
  cluster.Run(1, [](int rank, Communicator& communicator) {
    for (uint64_t round = 0; round < 6; ++round) {
      pid_t child = -1;
      if (rank == 0) {
        child = ::fork();
        if (child == 0) {
          // The child scribbles on its copy of everything that it can reach here, and goes.
          Bytes noise(1 << 20, std::byte{0xEE});
          ::_exit(noise.back() == std::byte{0xEE} ? 0 : 1);
        }
      }
      std::vector<float> buffer(200000, static_cast<float>(rank + 1));
      ASSERT_TRUE(communicator
                      .AllReduce(RawOf(buffer), DType::kF32, ReduceOp::kSum,
                                 {.group = {}, .tag = round, .deadline = {}})
                      .ok());
      EXPECT_EQ(buffer, std::vector<float>(200000, 3.0F));
      if (child > 0) {
        int status = -1;
        EXPECT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
      }
    }
  });
}

// A user whose limit on locked memory is Debian's old default. In a child of its own: root is not
// limited, and one does not become root again.
TEST_F(VerbsTest, WithoutLockedMemoryThePairFallsBackAndSaysWhy) {
  int out[2] = {};
  ASSERT_EQ(::pipe(out), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(out[1], STDERR_FILENO);
    const rlimit limit{.rlim_cur = 64 << 10, .rlim_max = 64 << 10};
    constexpr uid_t kNobody = 65534;
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || ::setresuid(kNobody, kNobody, kNobody) != 0) {
      ::_exit(2);
    }
    Cluster cluster(2, Media::kVerbs);
    cluster.Run(1, [](int rank, Communicator& communicator) {
      EXPECT_EQ(communicator.transport(1 - rank), "tcp");
      EXPECT_TRUE(communicator.Barrier({}).ok());
    });
    EXPECT_EQ(Count(cluster.registry(0), "heddle_comm_fallbacks_total", "verbs"), kLanes);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  ::close(out[1]);
  const UniqueFd reader(out[0]);
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = ::read(reader.get(), buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << text;
  EXPECT_THAT(text, HasSubstr("verbs is not used with worker-1"));
  EXPECT_THAT(text, HasSubstr("RLIMIT_MEMLOCK is 64 KiB"));
  EXPECT_THAT(text, HasSubstr("ulimit -l unlimited"));
}

}  // namespace
}  // namespace heddle::comm
