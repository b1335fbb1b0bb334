// Trainer's change of plan: build the next generation's state beside the one held.
#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/system/host.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/read/reader.h"
#include "checkpoint/save/save_tasks.h"
#include "checkpoint/storage/storage.h"
#include "elastic/service/measurement.h"
#include "elastic/worker/trainer.h"
#include "engine/program/state.h"

namespace heddle::elastic {
namespace {

// State travels under tags of its own, apart from the Programs'.
constexpr uint64_t kMoveTag = uint64_t{1} << 60;
constexpr uint64_t kLinksTag = kMoveTag - 1;

std::vector<comm::GroupMember> Members(
    const google::protobuf::RepeatedPtrField<wire::Member>& members) {
  std::vector<comm::GroupMember> out;
  for (const wire::Member& member : members) {
    out.push_back({.name = member.name(), .address = member.address()});
  }
  return out;
}

int RankOf(const std::vector<comm::GroupMember>& members, const std::string& name) {
  const auto found = std::ranges::find(members, name, &comm::GroupMember::name);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

// The boxes that the valid workers hold under the plan they come from.
std::vector<program::HeldState> HeldBoxes(const graph::Graph& graph,
                                          const program::Plan& plan,
                                          const wire::Start::Held& held) {
  const program::StateLayout layout = program::LayoutOf(graph, plan);
  std::vector<program::HeldState> out;
  for (size_t rank = 0; rank < layout.size(); ++rank) {
    const std::string& worker = plan.workers[rank];
    if (std::ranges::find(held.workers(), worker) != held.workers().end()) {
      out.push_back({.worker = worker, .boxes = layout[rank]});
    }
  }
  return out;
}

int64_t BoxBytes(const graph::Graph& graph, const program::Transfer& transfer) {
  return ElementCount(transfer.box.extent) * SizeOf(graph.master_dtype());
}

bool IsWhole(const graph::Graph& graph, const program::Transfer& transfer) {
  return transfer.box == WholeBox(graph.parameter(transfer.parameter).shape);
}

}  // namespace

Result<std::unique_ptr<comm::Communicator>> Trainer::Connect(int64_t generation,
                                                             std::vector<comm::GroupMember> members,
                                                             std::vector<int> peers,
                                                             const comm::MeasuredLinks& measured) {
  std::ranges::sort(peers);
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  const int rank = RankOf(members, options_.worker);
  std::erase(peers, rank);
  for (size_t member = 0; member < members.size(); ++member) {
    if (options_.job.comm.choose == comm::TransportRule::kCheapest) {
      members[member].transports = measured.Between(rank, static_cast<int>(member));
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(
      auto group,
      options_.endpoint->Connect({.generation = generation,
                                  .rank = rank,
                                  .members = members,
                                  .peers = std::move(peers),
                                  .operation_timeout = options_.job.elastic.operation_timeout},
                                 After(options_.policy.move_timeout)));
  group->OnPeerLost([post = options_.post, generation, members](int peer, const Status& reason) {
    post(PeerSeenLost{.generation = generation,
                      .peer = members[static_cast<size_t>(peer)].name,
                      .reason = reason.message()});
  });
  return group;
}

StateMoved Trainer::Move(const MoveState& move) {
  const Time begun = Now();
  StateMoved moved;
  moved.generation = move.start.generation();
  Result<std::unique_ptr<Generation>> next = BuildGeneration(move, moved);
  moved.seconds = Seconds(Now() - begun);
  if (next.ok()) {
    moved_ = *std::move(next);
  } else {
    moved.status = next.status();
  }
  return moved;
}

Result<std::unique_ptr<Trainer::Generation>> Trainer::BuildGeneration(const MoveState& move,
                                                                      StateMoved& moved) {
  const wire::Start& start = move.start;
  HEDDLE_RETURN_IF_ERROR(std::exchange(settle_status_, Status::Ok()));
  auto next = std::make_unique<Generation>();
  next->number = start.generation();
  next->applied_step = start.applied_step();
  next->lowered = FindLowered(start.generation());
  if (next->lowered == nullptr) {
    // A worker that leaves was not asked to prepare; it still has to know what the others will
    // hold.
    HEDDLE_RETURN_IF_ERROR(Lower(start.generation(), move.prepared.plan_json()).status());
    next->lowered = FindLowered(start.generation());
  }
  if (start.has_replicas()) {
    next->snapshot =
        SnapshotKey{.step = start.applied_step(), .generation = start.replicas().generation()};
  }
  next->state = std::make_unique<runtime::ParameterState>(graph_);
  next->shared = std::make_unique<runtime::SharedTensors>(*options_.endpoint);
  const bool member = next->lowered->rank >= 0;

  const auto move_members = Members(start.move_members());
  HEDDLE_ASSIGN_OR_RETURN(
      const comm::MeasuredLinks measured,
      MeasuredLinksFrom(move.prepared.links(), static_cast<int>(move_members.size())));
  HEDDLE_ASSIGN_OR_RETURN(const MovePlan plan, PlanMove(start, next->lowered->plan));
  std::vector<int> move_peers;
  for (const program::Transfer& transfer : plan.transfers) {
    if (transfer.source == options_.worker) {
      move_peers.push_back(RankOf(move_members, transfer.target));
    } else if (transfer.target == options_.worker) {
      move_peers.push_back(RankOf(move_members, transfer.source));
    }
  }
  const bool one_group = start.move_generation() == start.generation();
  const std::vector<int> peers =
      member ? PeersOf(*next->lowered, move.prepared) : std::vector<int>();
  if (one_group) {
    move_peers.insert(move_peers.end(), peers.begin(), peers.end());
  }
  HEDDLE_ASSIGN_OR_RETURN(auto move_group,
                          Connect(start.move_generation(), move_members, move_peers, measured));
  if (start.has_held() || start.has_replicas()) {
    HEDDLE_RETURN_IF_ERROR(FillFromPeers(start, plan, *move_group, *next, moved));
  } else if (member) {
    next->state->Hold(next->lowered->training.parameters);
    if (start.initial()) {
      next->state->Initialize(options_.job.seed);
    } else {
      HEDDLE_RETURN_IF_ERROR(FillFromCheckpoint(start.checkpoint_step(), *next, moved));
    }
  }
  next->state->Refresh();
  if (one_group) {
    next->group = std::move(move_group);
  } else {
    // Nobody closes its end before everybody has what it needs from it.
    const comm::CollectiveOptions all{
        .group = {}, .tag = kMoveTag, .deadline = After(options_.policy.move_timeout)};
    HEDDLE_RETURN_IF_ERROR(move_group->Barrier(all));
    if (member) {
      HEDDLE_ASSIGN_OR_RETURN(
          next->group,
          Connect(start.generation(), Members(move.prepared.members()), peers, measured));
    }
  }
  if (member) {
    // Collectives choose among algorithms as the planner's prediction did, by the same links.
    comm::LinkEnd own;
    own.host = HostIdentity();
    {
      const MutexLock lock(mutex_);
      own.link = link_;
    }
    const comm::CollectiveOptions all{
        .group = {}, .tag = kLinksTag, .deadline = After(options_.policy.move_timeout)};
    HEDDLE_RETURN_IF_ERROR(
        next->group->ShareLinkEnd(own, measured, options_.job.comm.preference(), all));
    MakeExecutors(*next);
    next->written = WrittenBoxes(*next->lowered);
    HEDDLE_ASSIGN_OR_RETURN(const int64_t staging,
                            checkpoint::StagingBytes(ViewsOf(*next, /*checkpoint=*/true)));
    const job::CheckpointSection& saves = options_.job.checkpoint;
    if (saves.background && (saves.every > 0 || saves.last)) {
      writer_->Reserve(staging);
    }
    HEDDLE_ASSIGN_OR_RETURN(next->replicator, MakeReplicator(*next, move.prepared, staging));
  }
  return next;
}

Result<Trainer::MovePlan> Trainer::PlanMove(const wire::Start& start,
                                            const program::Plan& next) const {
  MovePlan plan;
  if (start.has_held()) {
    HEDDLE_ASSIGN_OR_RETURN(const program::Plan held,
                            program::PlanFromJson(start.held().plan_json()));
    plan.held = HeldBoxes(graph_, held, start.held());
  } else if (start.has_replicas()) {
    HEDDLE_ASSIGN_OR_RETURN(plan.held, ReplicatedBoxes(start.replicas()));
  } else {
    return plan;
  }
  plan.transfers = program::PlanTransfers(graph_, plan.held, next);
  return plan;
}

// What comes from others, or goes to them, over `group`.
Status Trainer::FillFromPeers(const wire::Start& start,
                              const MovePlan& plan,
                              comm::Communicator& group,
                              Generation& next,
                              StateMoved& moved) {
  for (const program::Transfer& transfer : plan.transfers) {
    if (transfer.source.empty() && transfer.target == options_.worker) {
      return DataLossError("nobody holds {} any more", graph_.parameter(transfer.parameter).name);
    }
  }
  std::vector<Message> messages;
  for (size_t i = 0; i < plan.transfers.size(); ++i) {
    const program::Transfer& transfer = plan.transfers[i];
    if (transfer.source == options_.worker || transfer.target == options_.worker) {
      Message& message = messages.emplace_back();
      message.transfer = &transfer;
      message.tag = kMoveTag + 1 + i;
      message.receives = transfer.target == options_.worker;
    }
  }
  HEDDLE_RETURN_IF_ERROR(start.has_held() ? PackHeld(start, next, messages)
                                          : UnpackReplicas(start, plan, next, messages, moved));
  const auto members = Members(start.move_members());
  for (Message& message : messages) {
    const program::Transfer& transfer = *message.transfer;
    if (message.receives) {
      message.whole = next.state->BytesOf(transfer.parameter, transfer.role);
      if (!IsWhole(graph_, transfer)) {
        message.buffer.resize(static_cast<size_t>(BoxBytes(graph_, transfer)));
      }
    }
    message.work = message.receives ? group.Recv(RankOf(members, transfer.source), message.tag,
                                                 message.bytes(), /*urgent=*/false)
                                    : group.Send(RankOf(members, transfer.target), message.tag,
                                                 message.bytes(), /*urgent=*/false);
  }
  const std::string kind = start.has_held() ? "memory" : "replica";
  Status first;
  const Deadline deadline = After(options_.policy.move_timeout);
  for (Message& message : messages) {
    const program::Transfer& transfer = *message.transfer;
    const Status status = message.work.Wait(deadline);
    if (!status.ok() && first.ok()) {
      first = status;
      group.Abort(status);  // So that the waits below end and no message is left in our memory.
    }
    if (status.ok() && message.receives) {
      moved.bytes[kind] += BoxBytes(graph_, transfer);
      if (!message.buffer.empty()) {
        checkpoint::CopyPart(message.buffer.data(), transfer.box, message.whole.data(),
                             WholeBox(graph_.parameter(transfer.parameter).shape), transfer.box,
                             SizeOf(graph_.master_dtype()));
      }
    }
  }
  return first;
}

// What is held here is shared with the next state, and given to others from where it lies.
Status Trainer::PackHeld(const wire::Start& start,
                         Generation& next,
                         std::vector<Message>& messages) {
  const auto& holders = start.held().workers();
  const bool valid_here = std::ranges::find(holders, options_.worker) != holders.end();
  if (valid_here && (held_ == nullptr || held_->applied_step != start.applied_step())) {
    return InternalError("state of step {} is held where step {} is expected",
                         held_ == nullptr ? 0 : held_->applied_step, start.applied_step());
  }
  if (valid_here) {
    next.state->Share(*held_->state, next.lowered->training.parameters);
  }
  next.state->Hold(next.lowered->training.parameters);
  for (Message& message : messages) {
    if (message.receives) {
      continue;
    }
    const program::Transfer& transfer = *message.transfer;
    message.whole = held_->state->BytesOf(transfer.parameter, transfer.role);
    if (!IsWhole(graph_, transfer)) {
      message.buffer.resize(static_cast<size_t>(BoxBytes(graph_, transfer)));
      checkpoint::CopyPart(
          message.whole.data(), WholeBox(graph_.parameter(transfer.parameter).shape),
          message.buffer.data(), transfer.box, transfer.box, SizeOf(graph_.master_dtype()));
    }
  }
  return Status::Ok();
}

Status Trainer::FillFromCheckpoint(int64_t step, Generation& next, StateMoved& moved) {
  const std::string path = checkpoint::JoinPath(
      options_.job.checkpoint.RootIn(options_.output_folder), checkpoint::StepFolderName(step));
  HEDDLE_ASSIGN_OR_RETURN(const auto reader, checkpoint::Reader::Open(path));
  std::vector<checkpoint::ReadRequest> requests;
  const auto layout = program::LayoutOf(graph_, next.lowered->plan);
  for (const program::StateBox& box : layout[static_cast<size_t>(next.lowered->rank)]) {
    const std::span<std::byte> bytes = next.state->BytesOf(box.parameter, box.role);
    moved.bytes["checkpoint"] += static_cast<int64_t>(bytes.size());
    requests.push_back({.key = {.name = graph_.parameter(box.parameter).name,
                                .role = std::string(program::StateRoleName(box.role))},
                        .box = box.box,
                        .out = bytes});
  }
  return reader->ReadBoxes(requests, static_cast<int>(options_.job.threads));
}

}  // namespace heddle::elastic
