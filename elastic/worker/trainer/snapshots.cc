#include "elastic/worker/trainer/snapshots.h"

#include <algorithm>

#include "base/log.h"
#include "elastic/worker/trainer/saves.h"

namespace heddle::elastic {

Result<std::unique_ptr<Replicator>> Snapshots::MakeReplicator(const Generation& generation,
                                                              const wire::Prepare& prepared,
                                                              int64_t staging_bytes) {
  const auto& holders = prepared.holders();
  const bool any = std::ranges::any_of(
      holders, [](const wire::Prepare::Holders& of) { return of.ranks_size() > 0; });
  if (context_.replica_writer == nullptr || !any) {
    return std::unique_ptr<Replicator>();
  }
  const program::Plan& plan = generation.lowered->plan;
  const int workers = static_cast<int>(plan.workers.size());
  const program::StateLayout held = program::LayoutOf(context_.graph, plan);
  const program::StateLayout owned = program::OwnedLayout(context_.graph, plan);
  std::vector<ReplicaOwner> owners;
  for (int rank = 0; rank < workers; ++rank) {
    if (held[static_cast<size_t>(rank)].empty()) {
      continue;
    }
    ReplicaOwner& owner = owners.emplace_back();
    owner.rank = rank;
    for (const program::StateBox& box : owned[static_cast<size_t>(rank)]) {
      owner.boxes.push_back(StoredBoxOf(context_.graph, box));
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
  const bool compress = context_.options.job.checkpoint.replicas.compress;
  if (compress) {
    context_.replica_writer->Reserve(staging_bytes);
  }
  return std::make_unique<Replicator>(
      ReplicatorOptions{.generation = generation.number,
                        .owners = std::move(owners),
                        .compress = compress,
                        .timeout = context_.options.policy.move_timeout,
                        .group = generation.group.get(),
                        .writer = context_.replica_writer.get(),
                        .store = &store_,
                        .registry = context_.options.registry,
                        .changed = [this] { Tell(); }});
}

void Snapshots::Tell() {
  const MutexLock lock(mutex_);
  context_.options.post(SnapshotsHeld{.replicas = store_.List()});
}

void Snapshots::Adopt(const Generation& generation) {
  store_.DropAfter(generation.applied_step);
  if (generation.snapshot) {
    store_.MarkWhole(*generation.snapshot);
  }
  Tell();
}

// All workers decide alike, by the flags of the vote.
void Snapshots::TakeIfDue(Generation& generation) {
  const int64_t step = generation.applied_step;
  if (generation.replicator == nullptr || step == 0 || step >= context_.options.job.steps ||
      step % context_.options.job.checkpoint.replicas.every != 0) {
    return;
  }
  if (generation.flags.replicating) {
    context_.figures.skipped_snapshots.Add();
    return;
  }
  const auto views = ViewsOf(context_, generation, /*checkpoint=*/false);
  if (!views.ok()) {  // The next step meets the device's error, too, and ends this worker's part.
    LogWarning("no snapshot of step {}: {}", step, views.status().message());
    return;
  }
  generation.replicator->Take(step, !generation.flags.unreplicated, views->boxes);
  if (!views->copies.empty()) {
    context_.replica_writer->FinishCopy();
  }
}

}  // namespace heddle::elastic
