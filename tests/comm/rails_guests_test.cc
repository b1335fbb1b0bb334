// Several network adapters in each worker's machine, each in a network of its own: two guests of
// scripts/rdma-vm --nics 2. Both guests run the same tests in the same order.
#include <algorithm>
#include <atomic>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/endpoint/link_survey.h"
#include "comm/transport/verbs/rdma_ports.h"
#include "tests/comm/guest.h"

namespace heddle::comm {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

/// "rxe1/1" for 1.
std::string PortOf(int rail) {
  const std::string first = RdmaDevice();  // "rxe0"
  return first.substr(0, first.size() - 1) + std::to_string(rail) + "/1";
}

double Count(metrics::Registry& registry, const std::string& name, const std::string& port) {
  double sum = 0;
  for (const auto& family : registry.Collect()) {
    for (const auto& sample : family.samples) {
      const auto label = sample.labels.find("port");
      if (family.name == name && label != sample.labels.end() && label->second == port) {
        sum += sample.value;
      }
    }
  }
  return sum;
}

double Connections(Worker& worker, int rail) {
  return Count(worker.registry(), "heddle_comm_rail_connections_total", PortOf(rail));
}

/// A message between shared buffers, which the devices carry themselves, from 0 to 1.
void PassShared(Worker& worker, Communicator& group) {
  constexpr size_t kBytes = size_t{1} << 20;
  auto buffer = worker.endpoint().AllocateShared(kBytes);
  ASSERT_TRUE(buffer.ok()) << buffer.status().ToString();
  const auto bytes = buffer->bytes();
  if (Rank() == 0) {
    std::fill(bytes.begin(), bytes.end(), std::byte{7});
  }
  const Status status =
      (Rank() == 0 ? group.Send(1, 99, bytes, false) : group.Recv(0, 99, bytes, false)).Wait();
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{7}), kBytes);
  ASSERT_TRUE(group.Barrier({}).ok());
  double placed = 0;
  for (const auto& family : worker.registry().Collect()) {
    if (family.name == "heddle_comm_placed_bytes_total") {
      placed += family.samples.front().value;
    }
  }
  EXPECT_GE(placed, Rank() == 0 ? kBytes : 0);
}

class RailsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Variable("HEDDLE_VM").empty()) {
      GTEST_SKIP() << "not in a guest of scripts/rdma-vm";
    }
  }
};

TEST_F(RailsTest, BothPortsCarryConnections) {
  Worker worker;
  auto group = worker.Connect("both", 1);
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  EXPECT_EQ((*group)->transport(1 - Rank()), "verbs");
  EXPECT_EQ((*group)->ports(1 - Rank()), PortOf(0) + ", " + PortOf(1));
  EXPECT_EQ(Connections(worker, 0), 1);
  EXPECT_EQ(Connections(worker, 1), 1);
  PassShared(worker, **group);
}

TEST_F(RailsTest, NamedPortsAloneAreUsed) {
  Worker worker(PortOf(1));
  auto group = worker.Connect("named", 1);
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  EXPECT_EQ((*group)->ports(1 - Rank()), PortOf(1));
  EXPECT_EQ(Connections(worker, 0), 0);
  PassShared(worker, **group);
}

TEST_F(RailsTest, ANetworkThatIsDownBeforehandIsPassedOverAndSaysWhy) {
  Meet("down.begin");
  if (Rank() == 0) {
    Control("network 1 cut '*' '*'");
  }
  Meet("down.cut");
  Worker worker;
  testing::internal::CaptureStderr();
  auto group = worker.Connect("down", 1);
  const std::string log = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  EXPECT_EQ((*group)->ports(1 - Rank()), PortOf(0));
  EXPECT_EQ(Connections(worker, 0), 2);
  EXPECT_EQ(Connections(worker, 1), 0);
  if (Rank() == 0) {  // The dialler.
    EXPECT_EQ(Count(worker.registry(), "heddle_comm_rail_fallbacks_total", PortOf(1)), 1);
    EXPECT_THAT(log, HasSubstr("verbs over " + PortOf(1) + " is not used with worker-1: "));
    EXPECT_THAT(log, HasSubstr("deadline passed while connecting"));
  }
  PassShared(worker, **group);
  group->reset();
  // What failed is not tried again at once.
  group = worker.Connect("down.next", 2);
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  EXPECT_EQ((*group)->ports(1 - Rank()), PortOf(0));
  EXPECT_EQ(Count(worker.registry(), "heddle_comm_rail_fallbacks_total", PortOf(1)),
            Rank() == 0 ? 1 : 0);
  Meet("down.end");
  if (Rank() == 0) {
    Control("network 1 heal '*' '*'");
  }
  Meet("down.healed");
}

TEST_F(RailsTest, APortThatIsCutInTheRunIsALossAndTheOtherTakesOver) {
  Worker worker;
  {
    auto group = worker.Connect("cut", 1);
    ASSERT_TRUE(group.ok()) << group.status().ToString();
    const End end = ReduceUntilFailure(**group, kAmple, [](uint64_t number) {
      if (number == 5 && Rank() == 0) {
        Control("network 0 cut '*' '*'");
      }
    });
    EXPECT_TRUE(end.status.code() == StatusCode::kUnavailable ||
                end.status.code() == StatusCode::kAborted)
        << end.status.ToString();
    EXPECT_THAT(end.status.message(), HasSubstr("worker-"));
    (*group)->Abort(end.status);
  }
  Meet("cut.seen");
  auto next = worker.Connect("cut.next", 2);
  ASSERT_TRUE(next.ok()) << next.status().ToString();
  EXPECT_EQ((*next)->transport(1 - Rank()), "verbs");
  EXPECT_EQ((*next)->ports(1 - Rank()), PortOf(1));
  PassShared(worker, **next);
  Meet("cut.end");
  if (Rank() == 0) {
    Control("network 0 heal '*' '*'");
  }
  Meet("cut.healed");
}

/// Returns once RDMA can do what the link does: its address comes back a moment after the link.
void SetLink(int rail, const std::string& state) {
  const std::string command = "ip link set eth" + std::to_string(rail) + " " + state;
  ASSERT_EQ(::system(command.c_str()), 0) << command;
  const auto usable = [&] { return !ChooseRdmaPorts(FindRdmaPorts(), PortOf(rail), "").empty(); };
  const Time deadline = After(kAmple);
  while (usable() != (state == "up") && Now() < deadline) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  ASSERT_EQ(usable(), state == "up");
}

/// Within this guest: worker-0 with both ports, worker-1 and worker-2 with one each.
class OneGuestRailsTest : public RailsTest {
 protected:
  OneGuestRailsTest() : registries_(3) {
    const std::string devices[] = {"", PortOf(0), PortOf(1)};
    for (int rank = 0; rank < 3; ++rank) {
      const auto at = static_cast<size_t>(rank);
      EndpointOptions options = OptionsFor(Media::kVerbs, rank, &registries_[at]);
      options.bind_host = Variable("HEDDLE_ADDRESS");
      options.transport_options["verbs"]["devices"] = devices[at];
      auto made = Endpoint::Create(options);
      EXPECT_TRUE(made.ok()) << made.status().ToString();
      endpoints_.push_back(*std::move(made));
    }
  }
  /// The group in which worker-0 is joined to both others.
  std::vector<std::unique_ptr<Communicator>> Connect(int64_t generation) {
    std::vector<std::future<Result<std::unique_ptr<Communicator>>>> forming;
    for (int rank = 0; rank < 3; ++rank) {
      GroupOptions options;
      options.generation = generation;
      options.rank = rank;
      for (int other = 0; other < 3; ++other) {
        options.members.push_back(
            {Cluster::Name(other), endpoints_[static_cast<size_t>(other)]->address()});
      }
      options.peers = rank == 0 ? std::vector<int>{1, 2} : std::vector<int>{0};
      Endpoint* const endpoint = endpoints_[static_cast<size_t>(rank)].get();
      forming.push_back(std::async(std::launch::async, [endpoint, options] {
        return endpoint->Connect(options, After(kAmple));
      }));
    }
    std::vector<std::unique_ptr<Communicator>> groups;
    for (auto& future : forming) {
      auto group = future.get();
      EXPECT_TRUE(group.ok()) << group.status().ToString();
      groups.push_back(group.ok() ? *std::move(group) : nullptr);
    }
    return groups;
  }

  std::vector<metrics::Registry> registries_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

TEST_F(OneGuestRailsTest, APortThatGoesDownEndsItsOwnConnectionsOnly) {
  const auto groups = Connect(1);
  ASSERT_TRUE(groups[0] != nullptr && groups[1] != nullptr && groups[2] != nullptr);
  EXPECT_EQ(groups[0]->ports(1), PortOf(0));
  EXPECT_EQ(groups[0]->ports(2), PortOf(1));
  std::atomic<int> lost = -1;
  std::string reason;
  groups[0]->OnPeerLost([&](int peer, const Status& status) {
    reason = status.message();
    lost.store(peer);
  });
  SetLink(1, "down");
  const Time deadline = After(kAmple);
  while (lost.load() < 0 && Now() < deadline) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  ASSERT_EQ(lost.load(), 2);
  EXPECT_THAT(reason, HasSubstr("worker-2"));
  // The other pair goes on.
  std::byte word{5};
  std::byte heard{};
  const Work receiving = groups[1]->Recv(0, 1, std::span(&heard, 1), false);
  EXPECT_TRUE(groups[0]->Send(1, 1, std::span(&word, 1), false).Wait().ok());
  EXPECT_TRUE(receiving.Wait().ok());
  EXPECT_EQ(heard, word);
  SetLink(1, "up");
}

TEST_F(OneGuestRailsTest, WhatHappenedToAPortBeforeAConnectionDoesNotEndIt) {
  SetLink(1, "down");
  SetLink(1, "up");
  const auto groups = Connect(1);
  ASSERT_TRUE(groups[0] != nullptr && groups[2] != nullptr);
  EXPECT_EQ(groups[0]->ports(2), PortOf(1));
  std::byte word{5};
  std::byte heard{};
  for (const bool urgent : {false, true}) {
    const Work receiving = groups[2]->Recv(0, 1, std::span(&heard, 1), urgent);
    EXPECT_TRUE(groups[0]->Send(2, 1, std::span(&word, 1), urgent).Wait().ok());
    EXPECT_TRUE(receiving.Wait().ok());
  }
}

TEST_F(OneGuestRailsTest, ASurveyNamesThePortsOfAPair) {
  const auto survey = SurveyLinks({.workers = {{.name = "a"}, {.name = "b"}},
                                   .bind_host = Variable("HEDDLE_ADDRESS"),
                                   .transports = {}});
  ASSERT_TRUE(survey.ok()) << survey.status().ToString();
  for (const TransportTrial& trial : survey->pairs.front().trials) {
    EXPECT_TRUE(trial.status.ok()) << trial.transport << ": " << trial.status.ToString();
    const std::string both = PortOf(0) + ", " + PortOf(1);
    EXPECT_EQ(trial.ports, trial.transport == "verbs" ? both + " to " + both : "");
  }
}

TEST_F(RailsTest, APortThatIsDownIsNotWaitedFor) {
  Meet("port.begin");
  Worker worker;
  if (Rank() == 0) {
    SetLink(1, "down");
  }
  Meet("port.down");
  testing::internal::CaptureStderr();
  auto group = worker.Connect("port", 1);
  const std::string log = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  EXPECT_EQ((*group)->ports(1 - Rank()), PortOf(0));
  if (Rank() == 0) {
    EXPECT_THAT(log, HasSubstr("verbs over " + PortOf(1) + " is not used with worker-1: "));
    EXPECT_THAT(log, HasSubstr("its state is ")) << "and not that a deadline passed";
  }
  Meet("port.end");
  if (Rank() == 0) {
    SetLink(1, "up");
  }
}

}  // namespace
}  // namespace heddle::comm
