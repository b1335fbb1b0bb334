// A group: who is here, and what its end says to whom.
#include "comm/group/group.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/stream/event_loop.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

int MembersHere(int rank, const std::vector<AddressParts>& addresses) {
  auto loop = EventLoop::Create();
  EXPECT_TRUE(loop.ok()) << loop.status().ToString();
  GroupOptions options;
  options.rank = rank;
  for (const AddressParts& parts : addresses) {
    options.members.push_back(
        {"worker-" + std::to_string(options.members.size()), FormatAddress(parts)});
  }
  const auto group =
      std::make_shared<Group>(*loop, std::move(options), std::make_shared<SharedRegions>(nullptr));
  return group->segments().members_here();
}

// It says how many share this host's processors, so that the transports do not matter.
TEST(GroupTest, MembersOfThisHostAreCountedWhateverTheyOpen) {
  const std::vector<AddressParts> addresses{{{"host", "a"}, {"tcp", "10.0.0.1:1"}},
                                            {{"host", "b"}, {"tcp", "10.0.0.2:1"}},
                                            {{"host", "a"}, {"shm", "x"}},
                                            {{"host", "b"}, {"tcp", "10.0.0.2:2"}},
                                            {{"host", "b"}, {"shm", "y"}}};
  EXPECT_EQ(MembersHere(0, addresses), 2);
  EXPECT_EQ(MembersHere(1, addresses), 3);
  EXPECT_EQ(MembersHere(4, addresses), 3);
}

// Worker 1 has heard that worker 0 aborted, and closes. What was under way with worker 2 was no
// order of its own: it ends with worker 0's reason at both.
TEST(GroupTest, WhoLeavesAfterAPeersAbortSaysWhoseItWas) {
  constexpr auto kPatience = std::chrono::minutes(2);
  Cluster cluster(3, Media::kTcp);
  std::vector<std::unique_ptr<Communicator>> members(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      auto member = cluster.endpoint(rank).Connect(cluster.Options(rank, 1), After(kPatience));
      ASSERT_TRUE(member.ok()) << member.status().ToString();
      members[static_cast<size_t>(rank)] = *std::move(member);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::vector<float> values(4);
  std::vector<float> theirs(4);
  std::vector<float> of_first(4);
  const Work mine = members[1]->Recv(2, 7, RawOf(values), false);
  const Work other = members[2]->Recv(1, 8, RawOf(theirs), false);
  const Work heard = members[1]->Recv(0, 9, RawOf(of_first), false);
  members[0]->Abort(UnavailableError("the plan changed"));
  EXPECT_EQ(heard.Wait(After(kPatience)).code(), StatusCode::kAborted);
  members[1].reset();
  for (const Work& work : {mine, other}) {
    const Status status = work.Wait(After(kPatience));
    EXPECT_EQ(status.code(), StatusCode::kAborted) << status.ToString();
    EXPECT_THAT(status.message(), testing::HasSubstr("worker-0"));
    EXPECT_THAT(status.message(), testing::HasSubstr("the plan changed"));
  }
}

// Until somebody waits for just these; whether that came to be.
bool ComesToAwait(Endpoint& endpoint, int64_t generation, const std::vector<std::string>& names) {
  const Deadline deadline = After(std::chrono::minutes(2));
  while (Now() < deadline) {
    const AwaitedMembers awaited = endpoint.Awaited();
    if (awaited.names == names && (names.empty() || awaited.generation == generation)) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST(GroupTest, AMessageThatDoesNotComeIsAwaitedFromItsSender) {
  for (const Media& media : {Media::kTcp, Media::kShm}) {
    Cluster cluster(3, media);
    cluster.Run(4, [&](int rank, Communicator& communicator) {
      std::vector<std::byte> byte(1);
      if (rank == 0) {
        EXPECT_TRUE(communicator.Recv(1, 7, byte, true).Wait().ok());
        EXPECT_TRUE(cluster.endpoint(0).Awaited().names.empty()) << "it has come";
      } else if (rank == 1) {
        EXPECT_TRUE(ComesToAwait(cluster.endpoint(0), 4, {"worker-1"})) << media.name;
        EXPECT_TRUE(cluster.endpoint(1).Awaited().names.empty());
        EXPECT_TRUE(communicator.Send(0, 7, byte, true).Wait().ok());
      }
    });
  }
}

// Through shared memory or messages: along a chain, at its end the one that does not call.
TEST(GroupTest, WhoDoesNotCallIsAwaitedInACollective) {
  for (const Media& media : {Media::kTcp, Media::kShm}) {
    Cluster cluster(3, media);
    cluster.Run(5, [&](int rank, Communicator& communicator) {
      if (rank == 2) {
        EXPECT_TRUE(ComesToAwait(cluster.endpoint(0), 5, {"worker-2"})) << media.name;
        EXPECT_TRUE(cluster.endpoint(2).Awaited().names.empty());
      }
      EXPECT_TRUE(communicator.Barrier({.group = {}, .tag = 3, .deadline = {}}).ok());
      EXPECT_TRUE(cluster.endpoint(rank).Awaited().names.empty());
    });
  }
}

TEST(GroupTest, WhoIsNotConnectedYetIsAwaitedWhileAGroupForms) {
  Cluster cluster(2, Media::kTcp);
  std::thread early([&] {
    auto member =
        cluster.endpoint(0).Connect(cluster.Options(0, 6), After(std::chrono::minutes(1)));
    EXPECT_TRUE(member.ok()) << member.status().ToString();
  });
  EXPECT_TRUE(ComesToAwait(cluster.endpoint(0), 6, {"worker-1"}));
  auto member = cluster.endpoint(1).Connect(cluster.Options(1, 6), After(std::chrono::minutes(1)));
  EXPECT_TRUE(member.ok()) << member.status().ToString();
  early.join();
  EXPECT_TRUE(cluster.endpoint(0).Awaited().names.empty());
}

}  // namespace
}  // namespace heddle::comm
