#include "elastic/worker/trainer/generation_builder.h"

#include <algorithm>

#include "base/system/host.h"
#include "checkpoint/save/save_tasks.h"
#include "elastic/planning/measurement.h"
#include "elastic/worker/trainer/saves.h"
#include "elastic/worker/trainer/state_move.h"

namespace heddle::elastic {
namespace {

constexpr uint64_t kLinksTag = kMoveTag - 1;

// Ranks that a member talks to in its steps and in the exchange of snapshots.
std::vector<int> PeersOf(const Lowered& lowered, const wire::Prepare& prepared) {
  std::vector<int> peers = lowered.training.peers;
  peers.insert(peers.end(), lowered.evaluation.peers.begin(), lowered.evaluation.peers.end());
  for (int owner = 0; owner < prepared.holders_size(); ++owner) {
    for (const int holder : prepared.holders(owner).ranks()) {
      if (owner == lowered.rank) {
        peers.push_back(holder);
      } else if (holder == lowered.rank) {
        peers.push_back(owner);
      }
    }
  }
  return peers;
}

}  // namespace

Result<std::unique_ptr<Generation>> GenerationBuilder::Build(const MoveState& move,
                                                             const Generation* held,
                                                             StateMoved& moved) {
  const wire::Start& start = move.start;
  auto next = std::make_unique<Generation>();
  next->number = start.generation();
  next->applied_step = start.applied_step();
  HEDDLE_ASSIGN_OR_RETURN(next->lowered,
                          plans_.FindOrLower(start.generation(), move.prepared.plan_json()));
  if (start.has_replicas()) {
    next->snapshot =
        SnapshotKey{.step = start.applied_step(), .generation = start.replicas().generation()};
  }
  next->state = std::make_unique<runtime::ParameterState>(context_.graph, *context_.device);
  next->shared =
      std::make_unique<runtime::SharedTensors>(*context_.options.endpoint, *context_.device);
  next->direct =
      std::make_unique<runtime::DeviceTensors>(*context_.options.endpoint, *context_.device);
  HEDDLE_ASSIGN_OR_RETURN(const comm::MeasuredLinks measured,
                          MeasuredLinksFrom(move.prepared.links(), start.move_members_size()));
  HEDDLE_RETURN_IF_ERROR(MoveInto(*next, move, held, measured, moved));
  if (next->lowered->rank >= 0) {
    HEDDLE_RETURN_IF_ERROR(MakeRunnable(*next, move.prepared, measured));
  }
  return next;
}

Status GenerationBuilder::MoveInto(Generation& next,
                                   const MoveState& move,
                                   const Generation* held,
                                   const comm::MeasuredLinks& measured,
                                   StateMoved& moved) {
  const wire::Start& start = move.start;
  StateMove state_move(context_, start, held, snapshots_.store());
  HEDDLE_RETURN_IF_ERROR(state_move.Plan(next.lowered->plan));
  const bool member = next.lowered->rank >= 0;
  const bool one_group = start.move_generation() == start.generation();
  const std::vector<int> peers =
      member ? PeersOf(*next.lowered, move.prepared) : std::vector<int>();
  std::vector<int> move_peers = state_move.Peers();
  if (one_group) {
    move_peers.insert(move_peers.end(), peers.begin(), peers.end());
  }
  HEDDLE_ASSIGN_OR_RETURN(
      auto move_group,
      Connect(start.move_generation(), GroupMembers(start.move_members()), move_peers, measured));
  HEDDLE_RETURN_IF_ERROR(state_move.Fill(*move_group, next, moved));
  if (one_group) {
    next.group = std::move(move_group);
    return Status::Ok();
  }
  // No worker closes its end before all workers have received their state.
  const comm::CollectiveOptions all{.group = {}, .tag = kMoveTag, .deadline = After(kLongestMove)};
  const Progress::Wait waits(context_.progress);
  HEDDLE_RETURN_IF_ERROR(move_group->Barrier(all));
  if (member) {
    HEDDLE_ASSIGN_OR_RETURN(
        next.group,
        Connect(start.generation(), GroupMembers(move.prepared.members()), peers, measured));
  }
  return Status::Ok();
}

Status GenerationBuilder::MakeRunnable(Generation& next,
                                       const wire::Prepare& prepared,
                                       const comm::MeasuredLinks& measured) {
  const job::JobConfig& job = context_.options.job;
  // Collectives choose their algorithm by the links that the planner's prediction used.
  comm::LinkEnd own;
  own.host = HostIdentity();
  own.link = link_;
  const comm::CollectiveOptions all{.group = {}, .tag = kLinksTag, .deadline = After(kLongestMove)};
  {
    const Progress::Wait waits(context_.progress);
    HEDDLE_RETURN_IF_ERROR(next.group->ShareLinkEnd(own, measured, job.comm.preference(), all));
    HEDDLE_RETURN_IF_ERROR(next.direct->Agree(*next.group, PeersOf(*next.lowered, prepared),
                                              kLinksTag, *all.deadline));
  }
  context_.progress.Note();
  next.trainer = std::make_unique<runtime::Executor>(ExecutorFor(next, /*training=*/true));
  next.evaluator = std::make_unique<runtime::Executor>(ExecutorFor(next, /*training=*/false));
  next.written = WrittenBoxes(context_.graph, *next.lowered);
  HEDDLE_ASSIGN_OR_RETURN(const StateViews views, ViewsOf(context_, next, /*checkpoint=*/true));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t staging, checkpoint::StagingBytes(views.boxes));
  if (job.checkpoint.background && (job.checkpoint.every > 0 || job.checkpoint.last)) {
    context_.writer->Reserve(staging);
  }
  HEDDLE_ASSIGN_OR_RETURN(next.replicator, snapshots_.MakeReplicator(next, prepared, staging));
  return Status::Ok();
}

Result<std::unique_ptr<comm::Communicator>> GenerationBuilder::Connect(
    int64_t generation,
    std::vector<comm::GroupMember> members,
    std::vector<int> peers,
    const comm::MeasuredLinks& measured) {
  std::ranges::sort(peers);
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  const int rank = RankOf(members, context_.options.worker);
  std::erase(peers, rank);
  const Progress::Wait waits(context_.progress);
  for (size_t member = 0; member < members.size(); ++member) {
    if (context_.options.job.comm.choose == comm::TransportRule::kCheapest) {
      members[member].transports = measured.Between(rank, static_cast<int>(member));
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(auto group,
                          context_.options.endpoint->Connect(
                              {.generation = generation,
                               .rank = rank,
                               .members = members,
                               .peers = std::move(peers),
                               .operation_timeout = context_.options.job.elastic.operation_timeout},
                              After(context_.options.policy.move_timeout)));
  group->OnPeerLost(
      [post = context_.options.post, generation, members](int peer, const Status& reason) {
        post(PeerSeenLost{.generation = generation,
                          .peer = members[static_cast<size_t>(peer)].name,
                          .reason = reason.message()});
      });
  return group;
}

runtime::ExecutorOptions GenerationBuilder::ExecutorFor(Generation& generation, bool training) {
  const int64_t cap = context_.device->memory_cap();
  const int64_t state = generation.lowered->state_bytes;
  const bool validates = !training && context_.dataset->validation_windows() > 0;
  const Lowered& lowered = *generation.lowered;
  return {.graph = training ? lowered.training_graph.get() : lowered.evaluation_graph.get(),
          .program = training ? &lowered.training : &lowered.evaluation,
          .state = generation.state.get(),
          .group = generation.group.get(),
          .shared = generation.shared.get(),
          .direct = generation.direct.get(),
          .device = context_.device.get(),
          .read_sample =
              [&context = context_, validates](int64_t sample, std::span<int32_t> tokens,
                                               std::span<int32_t> targets) {
                return validates
                           ? context.dataset->ReadValidation(
                                 sample % context.dataset->validation_windows(), tokens, targets)
                           : context.dataset->ReadSample(sample, tokens, targets);
              },
          .before_update =
              [&context = context_, state = generation.state.get()](graph::ParameterId parameter) {
                for (const Box& kept : state->KeptOf(parameter)) {
                  for (const program::StateRole role : program::kStateRoles) {
                    const auto bytes = state->InPlace(parameter, role, kept);
                    context.writer->BeforeChange(bytes);
                    if (context.replica_writer != nullptr) {
                      context.replica_writer->BeforeChange(bytes);
                    }
                  }
                }
              },
          .progress = &context_.progress,
          .seed = context_.options.job.seed,
          .microbatches = static_cast<int>(context_.options.job.batch.microbatches()),
          .memory_cap_bytes = cap > 0 ? std::max<int64_t>(cap - state, 1) : 0};
}

}  // namespace heddle::elastic
