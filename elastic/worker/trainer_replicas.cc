// Trainer's snapshots in workers' memory: what is kept where, their start, and the way back.
#include <algorithm>

#include "checkpoint/format/layout.h"
#include "checkpoint/save/memory_part.h"
#include "elastic/worker/trainer.h"

namespace heddle::elastic {

std::vector<int> Trainer::PeersOf(const Lowered& lowered, const wire::Prepare& prepared) const {
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

Result<std::unique_ptr<Replicator>> Trainer::MakeReplicator(const Generation& generation,
                                                            const wire::Prepare& prepared,
                                                            int64_t staging_bytes) {
  const auto& holders = prepared.holders();
  const bool any = std::ranges::any_of(
      holders, [](const wire::Prepare::Holders& of) { return of.ranks_size() > 0; });
  if (replica_writer_ == nullptr || !any) {
    return std::unique_ptr<Replicator>();
  }
  const program::Plan& plan = generation.lowered->plan;
  const int workers = static_cast<int>(plan.workers.size());
  const program::StateLayout held = program::LayoutOf(graph_, plan);
  const program::StateLayout owned = program::OwnedLayout(graph_, plan);
  std::vector<ReplicaOwner> owners;
  for (int rank = 0; rank < workers; ++rank) {
    if (held[static_cast<size_t>(rank)].empty()) {
      continue;
    }
    ReplicaOwner& owner = owners.emplace_back();
    owner.rank = rank;
    for (const program::StateBox& box : owned[static_cast<size_t>(rank)]) {
      owner.boxes.push_back(StoredBoxOf(box));
    }
    if (rank < holders.size()) {
      owner.holders.assign(holders[rank].ranks().begin(), holders[rank].ranks().end());
    }
    for (const int holder : owner.holders) {
      if (holder < 0 || holder >= workers || holder == rank ||
          std::ranges::count(owner.holders, holder) > 1) {
        return InternalError("rank {}, one of {}, is to keep the part of rank {}", holder, workers,
                             rank);
      }
    }
  }
  const bool compress = options_.job.checkpoint.replicas.compress;
  if (compress) {
    replica_writer_->Reserve(staging_bytes);
  }
  return std::make_unique<Replicator>(ReplicatorOptions{.generation = generation.number,
                                                        .owners = std::move(owners),
                                                        .compress = compress,
                                                        .timeout = options_.policy.move_timeout,
                                                        .group = generation.group.get(),
                                                        .writer = replica_writer_.get(),
                                                        .store = &replicas_,
                                                        .registry = options_.registry,
                                                        .changed = [this] { TellReplicas(); }});
}

void Trainer::TellReplicas() {
  const MutexLock lock(replicas_mutex_);
  options_.post(SnapshotsHeld{.replicas = replicas_.List()});
}

// All workers decide alike, by what the vote told all of them.
void Trainer::Replicate(Generation& generation) {
  const int64_t step = generation.applied_step;
  if (generation.replicator == nullptr || step == 0 || step >= options_.job.steps ||
      step % options_.job.checkpoint.replicas.every != 0) {
    return;
  }
  if (generation.flags.replicating) {
    options_.registry
        ->GetCounter("heddle_replica_skipped_total",
                     "Snapshots in memory left out because a worker was still at the one before.")
        .Add();
    return;
  }
  generation.replicator->Take(step, !generation.flags.unreplicated,
                              ViewsOf(generation, /*checkpoint=*/false));
}

// The boxes that the holders have in shards of the snapshot.
Result<std::vector<program::HeldState>> Trainer::ReplicatedBoxes(
    const wire::Start::Replicas& replicas) const {
  HEDDLE_ASSIGN_OR_RETURN(const program::Plan plan, program::PlanFromJson(replicas.plan_json()));
  const program::StateLayout owned = program::OwnedLayout(graph_, plan);
  std::vector<program::HeldState> held;
  for (const wire::Start::Replicas::Holder& holder : replicas.holders()) {
    program::HeldState& state = held.emplace_back();
    state.worker = holder.worker();
    for (const int owner : holder.owners()) {
      if (owner < 0 || owner >= static_cast<int>(owned.size())) {
        return InternalError("{} holds the part of rank {} of {}", holder.worker(), owner,
                             owned.size());
      }
      const auto& boxes = owned[static_cast<size_t>(owner)];
      state.boxes.insert(state.boxes.end(), boxes.begin(), boxes.end());
    }
  }
  return held;
}

// What this worker needs and has itself: nobody sends it.
std::vector<program::StateBox> Trainer::OwnBoxes(const MovePlan& plan,
                                                 const Lowered& lowered) const {
  std::vector<program::StateBox> own;
  const auto mine = std::ranges::find(plan.held, options_.worker, &program::HeldState::worker);
  if (mine == plan.held.end() || lowered.rank < 0) {
    return own;
  }
  const auto layout = program::LayoutOf(graph_, lowered.plan);
  for (const program::StateBox& wanted : layout[static_cast<size_t>(lowered.rank)]) {
    for (const program::StateBox& box : mine->boxes) {
      if (box.parameter == wanted.parameter && box.role == wanted.role) {
        if (auto common = Intersect(wanted.box, box.box)) {
          own.push_back({.parameter = box.parameter, .role = box.role, .box = *std::move(common)});
        }
      }
    }
  }
  return own;
}

// Reads what others need, and what this worker needs itself, out of the parts that are here.
Status Trainer::UnpackReplicas(const wire::Start& start,
                               const MovePlan& plan,
                               Generation& next,
                               std::vector<Message>& messages,
                               StateMoved& moved) {
  next.state->Hold(next.lowered->training.parameters);
  const auto& holders = start.replicas().holders();
  const auto mine =
      std::ranges::find(holders, options_.worker, &wire::Start::Replicas::Holder::worker);
  if (mine == holders.end()) {
    return Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto parts, replicas_.Find(*next.snapshot, {mine->owners().begin(),
                                                                            mine->owners().end()}));
  HEDDLE_ASSIGN_OR_RETURN(const auto reader, checkpoint::ReaderOver(parts));
  std::vector<checkpoint::ReadRequest> requests;
  const auto read = [&](const program::StateBox& box, std::span<std::byte> out) {
    const checkpoint::StoredBox stored = StoredBoxOf(box);
    requests.push_back({.key = stored.tensor().key(), .box = box.box, .out = out});
  };
  const int64_t element = SizeOf(graph_.master_dtype());
  for (Message& message : messages) {
    if (!message.receives) {
      const program::Transfer& transfer = *message.transfer;
      message.buffer.resize(static_cast<size_t>(ElementCount(transfer.box.extent) * element));
      read({.parameter = transfer.parameter, .role = transfer.role, .box = transfer.box},
           message.buffer);
    }
  }
  const std::vector<program::StateBox> own = OwnBoxes(plan, *next.lowered);
  std::vector<Bytes> pieces(own.size());  // Those that are not whole tensors.
  for (size_t i = 0; i < own.size(); ++i) {
    const auto bytes = next.state->BytesOf(own[i].parameter, own[i].role);
    const int64_t wanted = ElementCount(own[i].box.extent) * element;
    moved.bytes["replica"] += wanted;
    if (wanted < static_cast<int64_t>(bytes.size())) {
      pieces[i].resize(static_cast<size_t>(wanted));
    }
    read(own[i], pieces[i].empty() ? bytes : std::span(pieces[i]));
  }
  HEDDLE_RETURN_IF_ERROR(reader->ReadBoxes(requests, static_cast<int>(options_.job.threads)));
  for (size_t i = 0; i < own.size(); ++i) {
    if (!pieces[i].empty()) {
      checkpoint::CopyPart(pieces[i].data(), own[i].box,
                           next.state->BytesOf(own[i].parameter, own[i].role).data(),
                           WholeBox(graph_.parameter(own[i].parameter).shape), own[i].box, element);
    }
  }
  return Status::Ok();
}

}  // namespace heddle::elastic
