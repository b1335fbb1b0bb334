// State on its way from a worker that a test plays: what does not fit its hash is not gone on from.
#include <map>
#include <thread>
#include <utility>

#include <gmock/gmock.h>

#include "base/thread.h"
#include "elastic/worker/trainer/chunk_hash.h"
#include "elastic/worker/trainer/held_boxes.h"
#include "elastic/worker/trainer/state_move.h"
#include "engine/graph/models/model.h"
#include "engine/program/plan.h"
#include "tests/elastic/worker/trainer_fixture.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

/// b holds all of generation 1's state after step 1, gives it to a, and leaves.
class MoveTest : public TrainerTest {
 protected:
  MoveTest() {
    auto graph = graph::BuildTrainingGraph(config_.model, job::GraphOptions(config_));
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    graph_ = *std::move(graph);
    comm::EndpointOptions options;
    options.config = {.worker = "b", .job = job_.id, .secret = "secret"};
    options.metrics = &registry_;
    giver_ = *comm::Endpoint::Create(options);
    next_ = *program::PlanFromJson(plan_json_);
    before_ = next_;
    before_.workers = {"b"};
  }

  MoveState Move() const {
    MoveState move = MoveInto(3, 1);
    move.start.set_move_generation(2);
    move.start.mutable_held()->set_generation(1);
    move.start.mutable_held()->set_plan_json(program::PlanToJson(before_));
    move.start.mutable_held()->clear_workers();
    move.start.mutable_held()->add_workers("b");
    move.held_plan_json.clear();
    wire::Member& giver = *move.start.add_move_members();
    giver.set_name("b");
    giver.set_address(giver_->address());
    return move;
  }

  // All that a lacks, with the hashes of `state`; afterwards the byte `changed` of the first box is
  // another. `pause`: before the first of it, and before the last word.
  Status Give(const MovedState& state, bool changed, Duration pause) {
    std::vector<comm::GroupMember> members = GroupMembers(Move().start.move_members());
    HEDDLE_ASSIGN_OR_RETURN(
        const auto group,
        giver_->Connect({.generation = 2, .rank = 1, .members = members, .peers = {0}},
                        After(std::chrono::minutes(2))));
    std::this_thread::sleep_for(pause);  // lint: allow sleep: as long as a slow link would take
    const auto transfers = program::PlanTransfers(
        graph_, {{.worker = "b", .boxes = program::LayoutOf(graph_, before_)[0]}}, next_);
    std::vector<Bytes> boxes;
    std::vector<std::vector<uint64_t>> hashes;
    std::vector<comm::Work> works;
    uint64_t tag = kMoveTag + 1;
    for (const program::Transfer& transfer : transfers) {
      boxes.emplace_back(static_cast<size_t>(ElementCount(transfer.box.extent)) * sizeof(float),
                         std::byte{1});
      hashes.push_back(state.Hashes(transfer, boxes.back()));
      boxes.back().back() ^= std::byte{static_cast<uint8_t>(changed && boxes.size() == 1 ? 4 : 0)};
      works.push_back(group->Send(0, tag++, boxes.back(), /*urgent=*/false));
      works.push_back(group->Send(0, tag++, std::as_bytes(std::span(hashes.back())),
                                  /*urgent=*/false));
    }
    boxes_ = transfers.size();
    for (const comm::Work& work : works) {
      HEDDLE_RETURN_IF_ERROR(work.Wait(After(std::chrono::minutes(2))));
    }
    std::this_thread::sleep_for(pause);  // lint: allow sleep: likewise
    return group->Barrier(
        {.group = {}, .tag = kMoveTag, .deadline = After(std::chrono::minutes(2))});
  }
  StateMoved MoveFrom(const MovedState& state, bool changed, Duration pause = Duration::zero()) {
    Status given;
    StateMoved moved;
    {
      const Thread giver("giver", [&] { given = Give(state, changed, pause); });
      moved = trainer_->Move(Move());
    }
    EXPECT_EQ(given.ok(), moved.status.ok()) << given.ToString();
    return moved;
  }

  graph::Graph graph_;
  program::Plan before_;
  program::Plan next_;
  std::unique_ptr<comm::Endpoint> giver_;
  size_t boxes_ = 0;
};

TEST_F(MoveTest, StateThatFitsItsHashesIsGoneOnFrom) {
  const StateMoved moved = MoveFrom({.generation = 1, .step = 1}, /*changed=*/false);
  ASSERT_TRUE(moved.status.ok()) << moved.status.ToString();
  EXPECT_THAT(moved.refused, SizeIs(0));
  EXPECT_GT(moved.bytes.at("memory"), 0);
  trainer_->Adopt(3);
  EXPECT_EQ(trainer_->Run({.generation = 3, .applied_step = 1}).how, RunEnded::How::kFinished);
}

TEST_F(MoveTest, WhoGivesTheStateMayTakeLongerThanACoordinatorIsWaitedFor) {
  const StateMoved moved =
      MoveFrom({.generation = 1, .step = 1}, /*changed=*/false, /*pause=*/5 * kCoordinatorWait);
  EXPECT_TRUE(moved.status.ok()) << moved.status.ToString();
}

TEST_F(MoveTest, AChangedByteIsRefusedWithItsHolderAndItsPlace) {
  const StateMoved moved = MoveFrom({.generation = 1, .step = 1}, /*changed=*/true);
  EXPECT_EQ(moved.status.code(), StatusCode::kDataLoss) << moved.status.ToString();
  ASSERT_THAT(moved.refused, SizeIs(1));
  const wire::Ready::Refused& refused = moved.refused[0];
  EXPECT_EQ(refused.holder(), "b");
  EXPECT_THAT(refused.chunk(), HasSubstr("piece 1 of 1"));
  EXPECT_NE(refused.expected(), refused.found());
  EXPECT_EQ(refused.chunks(), 1);
  EXPECT_THAT(moved.status.message(), HasSubstr(refused.chunk() + " from b has the hash"));
  trainer_->Adopt(3);
  EXPECT_EQ(trainer_->Run({.generation = 3, .applied_step = 1}).how, RunEnded::How::kFailed);
}

TEST_F(MoveTest, TheStateOfAnotherStepIsRefused) {
  const StateMoved moved = MoveFrom({.generation = 1, .step = 2}, /*changed=*/false);
  EXPECT_EQ(moved.status.code(), StatusCode::kDataLoss) << moved.status.ToString();
  ASSERT_THAT(moved.refused, SizeIs(1));
  EXPECT_EQ(moved.refused[0].chunks(), static_cast<int64_t>(boxes_));
}

// Of a parameter of which something else is wanted, too, the elements that are held count.
TEST(HeldBoxesTest, WhatIsWantedAndHeldIsCommonElementByElement) {
  const auto rows = [](int64_t first, int64_t count, program::StateRole role) {
    return program::StateBox{.parameter = 0, .role = role, .box = {{first, 0}, {count, 4}}};
  };
  const auto master = program::StateRole::kMaster;
  const std::vector<program::StateBox> wanted = {rows(0, 4, master)};
  const std::vector<program::StateBox> held = {rows(2, 4, master), rows(4, 2, master),
                                               rows(0, 4, program::StateRole::kExpAvg)};
  EXPECT_EQ(CommonBoxes(wanted, held), std::vector<program::StateBox>{rows(2, 2, master)});
}

}  // namespace
}  // namespace heddle::elastic
