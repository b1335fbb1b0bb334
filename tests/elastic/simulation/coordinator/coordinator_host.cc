#include "tests/elastic/simulation/coordinator/coordinator_host.h"

#include <utility>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {

CoordinatorHost::CoordinatorHost(Cluster& cluster, Job job)
    : cluster_(cluster),
      job_(std::move(job)) {}

wire::JobStatus CoordinatorHost::Describe() const {
  return leader_ != nullptr ? leader_->Describe() : wire::JobStatus();
}

CoordinatorProcess* CoordinatorHost::Find() const {
  for (const auto& process : processes_) {
    if (process.get() != leader_ && process->answers() && cluster_.world.random().Below(4) == 0) {
      cluster_.world.Count("a worker comes to a former coordinator");
      return process.get();
    }
  }
  return answers() ? leader_ : nullptr;
}

CoordinatorProcess& CoordinatorHost::Add(Coordinator machine, const SimClock& clock) {
  const auto life = static_cast<int64_t>(processes_.size());
  return *processes_.emplace_back(
      std::make_unique<CoordinatorProcess>(cluster_, life, std::move(machine), clock));
}

void CoordinatorHost::Start() {
  if (leader_ != nullptr) {
    return;
  }
  World& world = cluster_.world;
  const SimClock clock(world.options().seed, fmt::format("coordinator {}", processes_.size()),
                       world.now());
  const std::optional<DurableState> restored = cluster_.store.Load();
  if (restored && (restored->finished || !restored->failed.empty())) {
    return cluster_.log.TakeStoredEnd(*restored);  // The shell lets it rest.
  }
  if (std::exchange(store_lost_, false)) {
    BeginEra();
  }
  Job job = job_;
  job.checkpoints = cluster_.storage.Find();
  job.used_generation = cluster_.storage.HighestGeneration();
  job.data = cluster_.storage.empty() ? 0 : kJobData;
  job.provenance = cluster_.storage.FindProvenance();
  job.secret = SecretOf(cluster_.fleet.era());
  if (restored) {
    leader_ = &Add(Coordinator(*restored, job, clock.At(world.now())), clock);
    world.Count("coordinator restarted");
    cluster_.log.CheckRestored(*restored);
    cluster_.leaves.CheckRestored(*restored);
    leader_->ScheduleTick();
  } else {
    leader_ = &Add(Coordinator(), clock);
    leader_->Tell(Submitted{job});
  }
}

void CoordinatorHost::StartAfter(Duration time) {
  cluster_.world.At(cluster_.world.now() + time, [this] { Start(); });
}

void CoordinatorHost::Stop(bool power) {
  CoordinatorProcess& process = *std::exchange(leader_, nullptr);
  process.End();
  cluster_.store.EndProcess();
  cluster_.storage.StopCommitting();
  if (power) {
    cluster_.log.ForgetWhatIsNotDurable();
    cluster_.decisions.ForgetWhatIsNotDurable();
    cluster_.world.Count("power cut");
  }
  cluster_.streams.BreakAllOf(process);
}

void CoordinatorHost::End(CoordinatorProcess& former) {
  former.End();
  cluster_.streams.BreakAllOf(former);
}

// What the leader was writing came before, or will be refused. Its log, on another machine, may not
// be there as far as it was not made durable; what it writes further, nobody reads.
void CoordinatorHost::TakeOver() {
  CoordinatorProcess& former = *std::exchange(leader_, nullptr);
  cluster_.store.EndProcess();
  cluster_.storage.StopCommitting();
  former.Fence(*cluster_.store.state());
  if (cluster_.world.random().Below(2) == 0) {
    cluster_.log.ForgetWhatIsNotDurable();
    cluster_.decisions.ForgetWhatIsNotDurable();
  }
  Start();
}

void CoordinatorHost::LoseStore() {
  Stop(true);
  for (const auto& process : processes_) {
    if (!process->ended()) {
      End(*process);
    }
  }
  cluster_.store.Lose();
  store_lost_ = true;
}

// Whatever is on storage is the history that counts.
void CoordinatorHost::BeginEra() {
  const int64_t used = cluster_.storage.HighestGeneration();
  const std::vector<int64_t> found = cluster_.storage.Find();
  cluster_.world.Count("a store was lost");
  cluster_.fleet.BeginEra();
  cluster_.storage.CountAs(used);
  cluster_.ledger.BeginEra(used);
  cluster_.log.BeginEra(used, found.empty() ? 0 : found.back());
  cluster_.leaves.BeginEra();
  cluster_.decisions.BeginEra(used);
  cluster_.provenance.BeginEra();
  cluster_.copies.BeginEra();
  cluster_.alterations.BeginEra();
}

}  // namespace heddle::elastic
