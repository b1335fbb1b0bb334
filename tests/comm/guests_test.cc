// Workers on unlike machines: one in each guest of scripts/rdma-vm, over RDMA between them, and
// what befalls the link and the others. Every guest runs the same tests in the same order.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/comm/guest.h"

namespace heddle::comm {
namespace {

using testing::HasSubstr;

class GuestsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Variable("HEDDLE_VM").empty()) {
      GTEST_SKIP() << "not in a guest of scripts/rdma-vm";
    }
  }
};

TEST_F(GuestsTest, EveryPairUsesVerbsAndSumsAreRight) {
  Worker worker;
  const auto group = worker.Connect("sums", 1);
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  for (int peer = 0; peer < Size(); ++peer) {
    EXPECT_EQ((*group)->transport(peer), peer == Rank() ? "self" : "verbs");
  }
  uint64_t tag = 1;
  for (const size_t count : {size_t{1}, size_t{1001}, size_t{65536}, size_t{1} << 20}) {
    std::vector<float> buffer(count);
    for (size_t i = 0; i < count; ++i) {
      buffer[i] = static_cast<float>((i * 7 + static_cast<size_t>(Rank()) * 13) % 101);
    }
    const Status status = (*group)->AllReduce(RawOf(buffer), DType::kF32, ReduceOp::kSum,
                                              {.group = {}, .tag = tag++, .deadline = {}});
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (size_t i = 0; i < count; ++i) {
      size_t sum = 0;
      for (int rank = 0; rank < Size(); ++rank) {
        sum += (i * 7 + static_cast<size_t>(rank) * 13) % 101;
      }
      ASSERT_EQ(buffer[i], static_cast<float>(sum)) << count << " " << i;
    }
  }
  ASSERT_TRUE((*group)->Barrier({}).ok());
}

TEST_F(GuestsTest, AOneWayCutIsNamedAndTheNextGenerationForms) {
  Worker worker;
  {
    auto group = worker.Connect("cut", 1);
    ASSERT_TRUE(group.ok()) << group.status().ToString();
    const End end = ReduceUntilFailure(**group, kAmple, [](uint64_t number) {
      if (number == 5 && Rank() == 0) {
        Control("cut 0 1");
      }
    });
    EXPECT_TRUE(end.status.code() == StatusCode::kUnavailable ||
                end.status.code() == StatusCode::kAborted)
        << end.status.ToString();
    EXPECT_THAT(end.status.message(), HasSubstr("worker-"));
    (*group)->Abort(end.status);
  }
  Meet("cut.seen");
  if (Rank() == 0) {
    Control("heal 0 1");
  }
  Meet("cut.healed");
  const auto next = worker.Connect("healed", 2);
  ASSERT_TRUE(next.ok()) << next.status().ToString();
  EXPECT_EQ((*next)->transport(Rank() == 0 ? 1 : 0), "verbs");
  EXPECT_TRUE((*next)->Barrier({}).ok());
}

constexpr const char* kVictim = "HEDDLE_TEST_VICTIM";

/// A worker in a process of its own. Not a mere fork: librdmacm keeps its devices open for the
/// process, and the kernel takes no requests for one from a child that only inherited it.
pid_t StartVictim(const std::string& name) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv(kVictim, name.c_str(), 1);
    ::execl("/proc/self/exe", "guests", "--gtest_filter=GuestsTest.Victim", nullptr);
    ::_exit(1);
  }
  return child;
}

/// The process that AKilledProcess… starts.
TEST_F(GuestsTest, Victim) {
  const std::string name = Variable(kVictim);
  if (name.empty()) {
    GTEST_SKIP() << "nothing to do in this process";
  }
  Worker worker;
  auto group = worker.Connect(name, 1);
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  ReduceUntilFailure(**group, kAmple, [&](uint64_t number) {
    if (number == 20) {
      Tell(name + ".now", "");
    }
  });
  ADD_FAILURE() << "still alive";
}

TEST_F(GuestsTest, AKilledProcessIsNamedBeforeTheDeadlineAndAStoppedOneAtIt) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const std::string name = signal == SIGKILL ? "killed" : "stopped";
    const int victim = Size() - 1;
    if (Rank() == victim) {
      const pid_t child = StartVictim(name);
      Hear(name + ".now");
      EXPECT_EQ(::kill(child, signal), 0);
      Meet(name + ".seen");
      ::kill(child, SIGKILL);
      EXPECT_EQ(::waitpid(child, nullptr, 0), child);
      continue;
    }
    {
      Worker worker;
      auto group = worker.Connect(name, 1);
      ASSERT_TRUE(group.ok()) << group.status().ToString();
      EXPECT_EQ((*group)->transport(victim), "verbs");
      const End end =
          ReduceUntilFailure(**group, signal == SIGKILL ? kAmple : std::chrono::seconds(5));
      EXPECT_THAT(end.status.message(), HasSubstr(Cluster::Name(victim)));
      if (signal == SIGKILL) {
        EXPECT_TRUE(end.status.code() == StatusCode::kUnavailable ||
                    end.status.code() == StatusCode::kAborted)
            << end.status.ToString();
      } else {
        EXPECT_TRUE(end.status.code() == StatusCode::kDeadlineExceeded ||
                    end.status.code() == StatusCode::kAborted)
            << end.status.ToString();
      }
      (*group)->Abort(end.status);
    }
    Meet(name + ".seen");
  }
}

// The last of all: a guest does not come back.
TEST_F(GuestsTest, APoweredOffMachineIsNamedBeforeTheDeadlineAndTheOthersGoOn) {
  const int victim = Size() - 1;
  Worker worker;
  {
    auto group = worker.Connect("power", 1);
    ASSERT_TRUE(group.ok()) << group.status().ToString();
    const End end = ReduceUntilFailure(**group, kAmple, [&](uint64_t number) {
      if (number == 5 && Rank() == 0) {
        Control("power-off " + std::to_string(victim));
      }
    });
    EXPECT_NE(Rank(), victim);
    EXPECT_THAT(end.status.message(), HasSubstr(Cluster::Name(victim)));
    EXPECT_TRUE(end.status.code() == StatusCode::kUnavailable ||
                end.status.code() == StatusCode::kAborted)
        << end.status.ToString();
    (*group)->Abort(end.status);
  }
  if (Size() > 2) {
    const auto next = worker.Connect("rest", 2, Size() - 1);
    ASSERT_TRUE(next.ok()) << next.status().ToString();
    EXPECT_TRUE((*next)->Barrier({}).ok());
  }
}

}  // namespace
}  // namespace heddle::comm
