#include "tests/elastic/simulation/workers/snapshots.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {
namespace {

// More than a worker needs to, so that void ones are offered, too.
constexpr size_t kSnapshotsKept = 4;

}  // namespace

void Snapshots::Take(SimWorker& worker) {
  const SimOptions& options = cluster_.world.options();
  const SimRun& run = *worker.trainer.run;
  if (options.replicate_every == 0 || run.step % options.replicate_every != 0) {
    return;
  }
  SimState part = worker.trainer.held;
  if (part.empty()) {
    return;
  }
  if (options.planted == Planted::kStalePart && cluster_.world.random().Below(4) == 0) {
    for (auto& [parameter, value] : part) {
      value = {run.step - 1, cluster_.undisturbed.Chain(run.step - 1)};
    }
  }
  const SnapshotKey key(run.step, run.generation);
  const auto owner = static_cast<int32_t>(run.rank);
  cluster_.fleet.After(worker.key, 1, 30,
                       [this, key, owner, part](SimWorker& w) { Keep(w, key, owner, part); });
  for (const std::string& holder : run.holders) {
    cluster_.fleet.After(holder, 5, 150, [this, key, owner, part, from = worker.key](SimWorker& w) {
      const SimWorker& giver = cluster_.fleet.at(from);
      if (giver.runs() && cluster_.links.Carries(from, w.key) &&
          !cluster_.fleet.Unreachable(giver) && !cluster_.fleet.Unreachable(w)) {
        Keep(w, key, owner, part);
      }
    });
  }
}

void Snapshots::Keep(SimWorker& worker,
                     const SnapshotKey& key,
                     int32_t owner,
                     const SimState& part) {
  if (key.second < worker.trainer.fence) {
    return;
  }
  auto& parts = worker.trainer.parts;
  parts[key][owner] = part;
  while (parts.size() > kSnapshotsKept) {
    parts.erase(std::min_element(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
      return std::tuple(a.first.second, a.first.first) < std::tuple(b.first.second, b.first.first);
    }));
  }
  Tell(worker);
}

void Snapshots::Forget(SimWorker& worker, int64_t after_step) {
  if (std::erase_if(worker.trainer.parts,
                    [&](const auto& entry) { return entry.first.first > after_step; }) > 0) {
    cluster_.fleet.After(worker.key, 0, 0, [this](SimWorker& w) { Tell(w); });
  }
}

void Snapshots::Tell(SimWorker& worker) {
  SnapshotsHeld event;
  for (const auto& [key, parts] : worker.trainer.parts) {
    wire::Halted::Replicas& replicas = event.replicas.emplace_back();
    replicas.set_step(key.first);
    replicas.set_generation(key.second);
    for (const auto& [owner, part] : parts) {
      replicas.add_owners(owner);
      replicas.set_raw_bytes(replicas.raw_bytes() + 8 * static_cast<int64_t>(part.size()));
    }
  }
  cluster_.members.Tell(worker, event);
}

std::optional<SimParameter> Snapshots::Read(const SimWorker& worker,
                                            const wire::Start& start,
                                            int32_t parameter) {
  const wire::Start::Replicas& replicas = start.replicas();
  const SnapshotKey key(start.applied_step(), replicas.generation());
  const SimPlan plan = DecodeSimPlan(replicas.plan_json());
  for (const wire::Start::Replicas::Holder& holder : replicas.holders()) {
    const SimWorker* other = cluster_.fleet.Named(holder.worker(), worker.era);
    for (const int32_t owner : holder.owners()) {
      const auto& held = plan.at(static_cast<size_t>(owner)).second;
      if (!std::binary_search(held.begin(), held.end(), parameter)) {
        continue;
      }
      if (other == nullptr || other->trainer.parts.count(key) == 0 ||
          other->trainer.parts.at(key).count(owner) == 0) {
        cluster_.world.Fail(fmt::format("{} does not hold part {} of step {}, generation {}",
                                        holder.worker(), owner, key.first, key.second));
        return std::nullopt;
      }
      return other->trainer.parts.at(key).at(owner).at(parameter);
    }
  }
  cluster_.world.Fail(fmt::format("{} finds nobody with parameter {} of step {}, generation {}",
                                  worker.key, parameter, key.first, key.second));
  return std::nullopt;
}

}  // namespace heddle::elastic
