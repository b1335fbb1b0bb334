// Snapshots in simulated workers' memory, and whether the coordinator makes the best of them.
#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {
namespace {

// More than a worker needs to, so that void ones are offered, too.
constexpr size_t kSnapshotsKept = 4;
// So many generations may begin before the coordinator forgets the plan of one.
constexpr int64_t kPlansKept = 4;

}  // namespace

// ---- What workers do ----

void Cluster::TakeSnapshot(SimWorker& worker) {
  const SimWorker::Run& run = *worker.run;
  if (options_.replicate_every == 0 || run.step % options_.replicate_every != 0) {
    return;
  }
  SimState part = worker.held;
  if (part.empty()) {
    return;
  }
  if (options_.planted == Planted::kStalePart && random_.Below(4) == 0) {
    for (auto& [parameter, value] : part) {
      value = {run.step - 1, Chain(run.step - 1)};
    }
  }
  const SnapshotKey key(run.step, run.generation);
  const auto owner = static_cast<int32_t>(run.rank);
  OnWorkerAfter(worker.key, 1, 30,
                [this, key, owner, part](SimWorker& w) { KeepPart(w, key, owner, part); });
  for (const int32_t rank : prepare_of_generation_.at(run.generation).holders(owner).ranks()) {
    OnWorkerAfter(
        run.members[static_cast<size_t>(rank)], 5, 150,
        [this, key, owner, part, from = worker.key](SimWorker& w) {
          const SimWorker& giver = *Worker(from);
          const bool broken = broken_links_.count(std::minmax(w.key, from)) > 0;
          if (giver.alive && !giver.exited && !broken && !Unreachable(giver) && !Unreachable(w)) {
            KeepPart(w, key, owner, part);
          }
        });
  }
}

void Cluster::KeepPart(SimWorker& worker,
                       const SnapshotKey& key,
                       int32_t owner,
                       const SimState& part) {
  if (key.second < worker.fence) {
    return;
  }
  worker.parts[key][owner] = part;
  while (worker.parts.size() > kSnapshotsKept) {
    worker.parts.erase(std::min_element(worker.parts.begin(), worker.parts.end(),
                                        [](const auto& a, const auto& b) {
                                          return std::tuple(a.first.second, a.first.first) <
                                                 std::tuple(b.first.second, b.first.first);
                                        }));
  }
  TellParts(worker);
}

void Cluster::ForgetParts(SimWorker& worker, int64_t after_step) {
  if (std::erase_if(worker.parts,
                    [&](const auto& entry) { return entry.first.first > after_step; }) == 0) {
    return;
  }
  OnWorkerAfter(worker.key, 0, 0, [this](SimWorker& w) { TellParts(w); });
}

void Cluster::TellParts(SimWorker& worker) {
  SnapshotsHeld event;
  for (const auto& [key, parts] : worker.parts) {
    wire::Halted::Replicas& replicas = event.replicas.emplace_back();
    replicas.set_step(key.first);
    replicas.set_generation(key.second);
    for (const auto& [owner, part] : parts) {
      replicas.add_owners(owner);
      replicas.set_raw_bytes(replicas.raw_bytes() + 8 * static_cast<int64_t>(part.size()));
    }
  }
  TellMember(worker, event);
}

// One parameter of the snapshot that is moved, from any of the holders of its part.
std::optional<SimParameter> Cluster::ReadPart(const SimWorker& worker,
                                              const wire::Start& start,
                                              int32_t parameter) {
  const wire::Start::Replicas& replicas = start.replicas();
  const SnapshotKey key(start.applied_step(), replicas.generation());
  const SimPlan plan = DecodeSimPlan(replicas.plan_json());
  for (const wire::Start::Replicas::Holder& holder : replicas.holders()) {
    const SimWorker* other = Named(holder.worker());
    for (const int32_t owner : holder.owners()) {
      const auto& held = plan.at(static_cast<size_t>(owner)).second;
      if (!std::binary_search(held.begin(), held.end(), parameter)) {
        continue;
      }
      if (other == nullptr || other->parts.count(key) == 0 ||
          other->parts.at(key).count(owner) == 0) {
        Fail(fmt::format("{} does not hold part {} of step {}, generation {}", holder.worker(),
                         owner, key.first, key.second));
        return std::nullopt;
      }
      return other->parts.at(key).at(owner).at(parameter);
    }
  }
  Fail(fmt::format("{} finds nobody with parameter {} of step {}, generation {}", worker.key,
                   parameter, key.first, key.second));
  return std::nullopt;
}

// ---- What the coordinator says ----

void Cluster::CheckHolders(const wire::Prepare& prepare) {
  const int64_t generation = prepare.generation();
  const auto [found, is_new] = prepare_of_generation_.emplace(generation, prepare);
  if (!is_new && found->second.SerializeAsString() != prepare.SerializeAsString()) {
    Fail(fmt::format("generation {} is prepared in two ways", generation));
  }
  if (prepare.holders_size() != (options_.replicate_every > 0 ? prepare.members_size() : 0)) {
    Fail(fmt::format("generation {} has holders for {} members", generation,
                     prepare.holders_size()));
  }
  for (int rank = 0; rank < prepare.holders_size(); ++rank) {
    const auto& ranks = prepare.holders(rank).ranks();
    const std::set<int32_t> others(ranks.begin(), ranks.end());
    if (static_cast<int>(others.size()) !=
            std::min(options_.replica_copies, prepare.members_size() - 1) ||
        others.count(rank) > 0 || (!others.empty() && *others.rbegin() >= prepare.members_size())) {
      Fail(fmt::format("generation {} has unfit holders for rank {}", generation, rank));
    }
  }
}

bool Cluster::IsVoid(const SnapshotKey& key) const {
  const auto last = last_snapshot_.find(key.second);
  return last == last_snapshot_.end() || key.first > last->second;
}

// A snapshot that is gone on from is of the history that counts; and when only steps matter,
// nothing older than the newest that those who were halted hold completely.
void Cluster::CheckSource(const wire::Start& start) {
  const int64_t generation = start.generation();
  const auto [found, is_new] = start_sent_.emplace(generation, start.applied_step());
  if (!is_new && found->second != start.applied_step()) {
    Fail(fmt::format("generation {} starts after two steps", generation));
  }
  if (start.has_replicas() && IsVoid({start.applied_step(), start.replicas().generation()})) {
    Fail(fmt::format("generation {} starts from step {} of generation {}, which was given up",
                     generation, start.applied_step(), start.replicas().generation()));
  }
  if (start.has_checkpoint_step()) {
    const auto stored = committed_.find(start.checkpoint_step());
    if (stored == committed_.end()) {
      Fail(fmt::format("generation {} starts from checkpoint {}, which is not there", generation,
                       start.checkpoint_step()));
    } else if (!Counts(stored->second, stored->first)) {
      Fail(fmt::format(
          "generation {} starts from checkpoint {} of generation {}, which was given up",
          generation, stored->first, stored->second));
    }
  }
  if (!is_new || options_.tells_moves) {
    return;
  }
  std::map<SnapshotKey, std::set<int32_t>> present;
  for (const wire::Member& member : start.move_members()) {
    const SimWorker* worker = Worker(member.address());
    if (worker == nullptr || !worker->alive || worker->fence != generation - 1) {
      continue;  // It was not asked what it holds.
    }
    for (const auto& [key, parts] : worker->parts) {
      for (const auto& [owner, part] : parts) {
        present[key].insert(owner);
      }
    }
  }
  for (auto newest = present.rbegin(); newest != present.rend(); ++newest) {
    const auto& [key, owners] = *newest;
    const auto began = last_snapshot_.find(key.second);
    const bool known = key.first <= coordinator_->StatusAt(now_).step() && !IsVoid(key) &&
                       std::distance(began, last_snapshot_.end()) <= kPlansKept;
    if (known && owners.size() == DecodeSimPlan(plan_of_generation_.at(key.second)).size()) {
      ++result_.probes["complete snapshot"];
      if (start.applied_step() < key.first ||
          (start.applied_step() == key.first && !start.has_held() && !start.has_replicas())) {
        Fail(fmt::format("generation {} starts after step {} although step {} is in memory",
                         generation, start.applied_step(), key.first));
      }
      return;
    }
  }
}

}  // namespace heddle::elastic
