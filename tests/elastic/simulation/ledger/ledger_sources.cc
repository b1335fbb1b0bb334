// Whether the coordinator makes the best of checkpoints and of snapshots in memory.
#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"
#include "tests/elastic/simulation/ledger/ledger.h"

namespace heddle::elastic {
namespace {

// So many generations may be stored as the one in force before the coordinator forgets the plan of
// one. Its Go need not have been sent: the coordinator may have crashed before.
constexpr int64_t kPlansKept = 4;

}  // namespace

void Ledger::CheckCheckpoints() {
  if (!std::exchange(checkpoints_changed_, false) || cluster_.world.ended()) {
    return;
  }
  const wire::JobStatus status = cluster_.coordinator.Describe();
  for (const int64_t step : status.checkpoint_steps()) {
    const auto generation = cluster_.storage.GenerationOf(step);
    if (!generation) {
      cluster_.world.Fail(fmt::format("checkpoint {} is listed and was pruned", step));
    } else if (!Counts(*generation, step)) {
      cluster_.world.Fail(
          fmt::format("checkpoint {} is listed and of generation {}, which was given up there",
                      step, *generation));
    }
    for (int32_t parameter = 0; generation && parameter < kSimParameters; ++parameter) {
      if (cluster_.alterations.IsKnown(cluster_.storage.Read(step, parameter))) {
        cluster_.world.Fail(fmt::format(
            "checkpoint {} is listed, and parameter {} in it was found altered", step, parameter));
      }
    }
  }
  if (!cluster_.storage.empty() &&
      (status.checkpoint_steps().empty() ||
       cluster_.storage.newest() > *status.checkpoint_steps().rbegin())) {
    cluster_.world.Count("checkpoint given up");
  }
}

void Ledger::CheckHolders(const wire::Prepare& prepare) {
  const SimOptions& options = cluster_.world.options();
  const int64_t generation = prepare.generation();
  if (prepare.holders_size() != (options.replicate_every > 0 ? prepare.members_size() : 0)) {
    cluster_.world.Fail(fmt::format("generation {} has holders for {} members", generation,
                                    prepare.holders_size()));
  }
  for (int rank = 0; rank < prepare.holders_size(); ++rank) {
    const auto& ranks = prepare.holders(rank).ranks();
    const std::set<int32_t> others(ranks.begin(), ranks.end());
    if (static_cast<int>(others.size()) !=
            std::min(options.replica_copies, prepare.members_size() - 1) ||
        others.count(rank) > 0 || (!others.empty() && *others.rbegin() >= prepare.members_size())) {
      cluster_.world.Fail(
          fmt::format("generation {} has unfit holders for rank {}", generation, rank));
    }
  }
}

void Ledger::NoteStored() {
  if (const auto& stored = cluster_.store.state(); stored && stored->held) {
    in_force_.insert(stored->held->number);
  }
  for (const SnapshotKey& key : refused_) {
    int64_t& last = last_snapshot_.at(key.second);
    last = std::min(last, key.first - 1);
  }
  refused_.clear();
}

void Ledger::NoteSuspended(int64_t step) {
  for (auto& [generation, last] : last_snapshot_) {
    last = std::min(last, step - 1);
  }
}

bool Ledger::IsVoid(const SnapshotKey& key) const {
  const auto last = last_snapshot_.find(key.second);
  return last == last_snapshot_.end() || key.first > last->second;
}

// A snapshot that is gone on from is of the history that counts; and when only steps matter,
// nothing older than the newest that those who were halted hold completely.
void Ledger::CheckSource(const wire::Start& start) {
  World& world = cluster_.world;
  const int64_t generation = start.generation();
  const auto [found, is_new] = start_sent_.emplace(generation, start.applied_step());
  if (!is_new && found->second != start.applied_step()) {
    world.Fail(fmt::format("generation {} starts after two steps", generation));
  }
  if (start.has_replicas() && IsVoid({start.applied_step(), start.replicas().generation()})) {
    world.Fail(fmt::format("generation {} starts from step {} of generation {}, which was given up",
                           generation, start.applied_step(), start.replicas().generation()));
  }
  cluster_.copies.Check(start);
  if (start.has_checkpoint_step()) {
    const int64_t step = start.checkpoint_step();
    const auto stored = cluster_.storage.GenerationOf(step);
    if (!stored) {
      world.Fail(fmt::format("generation {} starts from checkpoint {}, which is not there",
                             generation, step));
    } else if (!Counts(*stored, step)) {
      world.Fail(fmt::format(
          "generation {} starts from checkpoint {} of generation {}, which was given up",
          generation, step, *stored));
    }
  }
  if (is_new && !world.options().tells_moves) {
    CheckNewest(start);
  }
}

void Ledger::CheckNewest(const wire::Start& start) {
  std::map<SnapshotKey, std::set<int32_t>> present;
  for (const wire::Member& member : start.move_members()) {
    const SimWorker* worker = cluster_.fleet.Find(member.address());
    if (worker == nullptr || !worker->alive || worker->trainer.fence != start.generation() - 1) {
      continue;  // It was not asked what it holds.
    }
    for (const auto& [key, parts] : worker->trainer.parts) {
      if (cluster_.copies.WasRefused({key.second, key.first, member.name()})) {
        continue;
      }
      for (const auto& [owner, part] : parts) {
        present[key].insert(owner);
      }
    }
  }
  for (auto newest = present.rbegin(); newest != present.rend(); ++newest) {
    const auto& [key, owners] = *newest;
    const auto since = std::distance(in_force_.lower_bound(key.second), in_force_.end());
    const bool known =
        key.first <= cluster_.coordinator.Describe().step() && !IsVoid(key) && since <= kPlansKept;
    if (known && static_cast<int>(owners.size()) == prepared_.at(key.second).members_size()) {
      cluster_.world.Count("complete snapshot");
      if (start.applied_step() < key.first ||
          (start.applied_step() == key.first && !start.has_held() && !start.has_replicas())) {
        cluster_.world.Fail(
            fmt::format("generation {} starts after step {} although step {} is in memory",
                        start.generation(), start.applied_step(), key.first));
      }
      return;
    }
  }
}

}  // namespace heddle::elastic
