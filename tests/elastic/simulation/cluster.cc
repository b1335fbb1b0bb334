#include "tests/elastic/simulation/cluster.h"

#include <fmt/format.h>

namespace heddle::elastic {
namespace {

// After the last fault the next step is completed within the first, the job within the second. A
// plan alone may take 200 s, once, and the product's own limits let a worker that hangs be waited
// for as long as a minute before and after it.
constexpr double kProgressSeconds = 440;
constexpr double kLivenessSeconds = 600;
constexpr int64_t kMaxEvents = 3'000'000;
constexpr int64_t kMaxReplayedEvents = 300'000'000;

Job JobOf(const SimOptions& options) {
  Job job;
  job.id = "job";
  JobPolicy& policy = job.policy;
  policy.total_steps = options.steps;
  policy.initial_workers = options.workers;
  policy.min_workers = 1;
  policy.checkpoint_every = options.checkpoint_every;
  policy.validate_every = options.validate_every;
  policy.digest_every = options.digest_every;
  policy.stop_on_non_finite = options.stop_on_refused;
  policy.links.transports = {"shm", "tcp"};
  policy.ends_suspended = options.local;
  policy.drift.action = options.observes ? DriftAction::kObserve : DriftAction::kAct;
  if (!options.product_patience) {
    policy.formation_timeout = std::chrono::seconds(5);
    policy.reply_timeout = std::chrono::seconds(10);
    policy.move_timeout = std::chrono::seconds(15);
    policy.stop_timeout = std::chrono::seconds(20);
    policy.profile_timeout = std::chrono::seconds(10);
    policy.mass_silence = std::chrono::seconds(8);
    policy.hang_timeout = std::chrono::seconds(10);
    policy.drift.cooldown = std::chrono::seconds(1);
    policy.links.timeout = std::chrono::seconds(2);
    policy.links.wait = std::chrono::seconds(10);
  }
  policy.replicate_every = options.replicate_every;
  policy.replica_copies = options.replica_copies;
  job.devices[""] = "auto";
  policy.demanded = options.demands_alike ? Guarantee::kPlanInvariant : Guarantee::kNone;
  return job;
}

}  // namespace

Cluster::Cluster(const SimOptions& options)
    : world(options),
      undisturbed(options.refused_every),
      fleet(world),
      links(world),
      streams(*this),
      store(*this),
      coordinator(*this, JobOf(options)),
      prices(*this),
      planner(*this),
      storage(*this),
      ledger(*this),
      copies(*this),
      alterations(*this),
      log(*this),
      leaves(*this),
      decisions(*this),
      provenance(*this),
      outcomes(*this),
      members(*this),
      moves(*this),
      training(*this),
      snapshots(*this),
      faults(*this) {}

std::string Cluster::Standings() const {
  std::string text;
  for (const auto& [key, worker] : fleet.workers()) {
    if (worker->runs()) {
      text += fmt::format(" {}({})={}/{}", key, worker->member->name(),
                          wire::Standing_Name(worker->member->standing()),
                          worker->member->applied_step());
    }
  }
  return text;
}

Time Cluster::Limit() const {
  const Time healed = world.healed_at().value_or(faults.end());
  const bool goes_on = log.stepped_since_healed() || !world.healed();
  return healed + FromSeconds(goes_on ? kLivenessSeconds : kProgressSeconds);
}

SimResult Cluster::Run() {
  coordinator.Start();
  const SimOptions& options = world.options();
  for (int i = 0; i < options.workers; ++i) {
    members.Spawn(i % 2 == 0 ? fmt::format("node-{}", i) : "");
  }
  faults.Schedule();
  SimResult& result = world.result();
  int64_t events = 0;
  for (; !world.idle() && !world.ended() && result.error.empty(); ++events) {
    if (events > (options.replayed > 0 ? kMaxReplayedEvents : kMaxEvents)) {
      world.Fail("somebody is busy doing nothing");
    }
    if (world.next() > Limit()) {
      world.Fail((log.stepped_since_healed() || !world.healed()
                      ? "the job did not finish; coordinator "
                      : "no step is completed after the last fault; coordinator ") +
                 (coordinator.runs() ? coordinator.Describe().ShortDebugString() : "down") +
                 Standings());
      break;
    }
    world.MakeNextCall();
  }
  if (!world.ended() && result.error.empty()) {
    world.Fail("nothing is left to happen and the job is not done");
  }
  result.seconds = world.seconds();
  world.Count("events", static_cast<int>(events));
  return result;
}

}  // namespace heddle::elastic
