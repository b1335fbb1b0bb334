#include "tests/elastic/simulation/faults/faults.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"
#include "tests/elastic/simulation/faults/kinds.h"

namespace heddle::elastic {

namespace {

using Kind = std::string (*)(Cluster& cluster, const Fault& fault, Random& random);
// In their order.
constexpr std::array<Kind, kFaultKinds> kKinds = {
    faults::Kill,
    faults::KillHost,
    faults::KillHalf,
    faults::Stop,
    faults::Slow,
    faults::Join,
    faults::JoinAndDie,
    faults::JoinAbsurd,
    faults::JoinUnlike,
    faults::Drain,
    faults::CancelDrain,
    faults::Notice,
    faults::JumpClock,
    faults::Restart,
    faults::CutPower,
    faults::CrashInActions,
    faults::StopCoordinator,
    faults::DoubleCoordinator,
    faults::LoseStore,
    faults::JumpCoordinatorClock,
    faults::RefusePlans,
    faults::SlowPlans,
    faults::StoreErrors,
    faults::SlowStore,
    faults::CrashInStore,
    faults::BreakStream,
    faults::CutOff,
    faults::BreakLink,
    faults::OneWayLink,
    faults::CutControl,
    faults::CutControl,
    faults::CutControl,
    faults::Split,
    faults::SlowLinks,
    faults::Elsewhere,
    faults::Late,
    faults::PrepareError,
    faults::OtherProgram,
    faults::DamageCheckpoint,
    faults::ChangeMoves,
    faults::Alter,
    faults::FailAlone,
    faults::Stranger,
    faults::Emulate,
    faults::Suspend,
    faults::Cancel,
};

}  // namespace

void FaultInjector::Schedule() {
  World& world = cluster_.world;
  const SimOptions& options = world.options();
  LastUntil(world.now() + std::chrono::seconds(4));
  for (const Fault& fault : options.faults) {
    const Time at = world.now() + FromSeconds(fault.at);
    LastUntil(at + FromSeconds(fault.seconds));
    world.At(at, [this, fault] { Inject(fault); });
  }
  if (options.priced()) {
    LastUntil(world.now() + std::chrono::hours(1));  // Steps take long where all are slow.
  }
  if (!options.calm()) {  // What ends by itself needs no healing.
    world.At(end_, [this] { HealAll(); });
  }
}

void FaultInjector::Inject(const Fault& fault) {
  World& world = cluster_.world;
  if (world.options().control_faults_only && !AllMembersRun()) {
    return world.After(300, 600, [this, fault] { Inject(fault); });
  }
  if (world.ended() || world.healed()) {
    return;
  }
  Random random(StreamKey(fault.draw, "fault"));
  const std::string what = kKinds[static_cast<size_t>(fault.kind)](cluster_, fault, random);
  if (!what.empty()) {
    cluster_.outcomes.NoteFault(fault.kind);
    world.Count(std::string("fault ") + NameOf(fault.kind));
    world.Note(fmt::format("FAULT {}: {}", NameOf(fault.kind), what));
  }
}

bool FaultInjector::AllMembersRun() const {
  const int64_t generation = cluster_.ledger.newest_go();
  if (generation == 0) {
    return false;
  }
  const auto& members = cluster_.ledger.PrepareOf(generation).members();
  return std::all_of(members.begin(), members.end(), [&](const auto& member) {
    const SimWorker* worker = cluster_.fleet.Named(member.name());
    return worker != nullptr && worker->trainer.run &&
           worker->trainer.run->generation == generation;
  });
}

void FaultInjector::OnceIn(const std::string& phase, std::function<void()> call) {
  phase_ = phase;
  once_in_phase_ = std::move(call);
}

// What it says again when it is back may be of a history that was given up.
void FaultInjector::NoteGo(const wire::Prepare& prepare, int64_t step) {
  World& world = cluster_.world;
  if (world.healed() || world.options().calm()) {
    return;
  }
  for (SimWorker* worker : cluster_.fleet.Running()) {
    const bool takes_part = std::ranges::any_of(
        prepare.members(), [&](const auto& member) { return member.address() == worker->key; });
    if (takes_part || worker->control.connection == 0) {
      continue;
    }
    const SimState& held = worker->trainer.held;
    const bool is_ahead = !held.empty() && held.begin()->second.step > step;
    if (cut_halted_.erase(worker->key) > 0) {
      worker->control.to_coordinator.blocked_until = world.now();
      worker->control.from_coordinator.blocked_until = world.now();
    }
    if (is_ahead || world.Happens(3)) {
      world.Count("a bystander's stream breaks");
      world.Count("a bystander's stream breaks, which is ahead", is_ahead ? 1 : 0);
      world.After(0, is_ahead ? 5 : 150, [this, key = worker->key] {
        cluster_.streams.Break(key, cluster_.world.random().Below(2) == 0);
      });
    }
  }
  cut_halted_.clear();
}

// It has said all that it has run and does not hear what of it is durable, and the job may go on
// without it, from an older step.
void FaultInjector::NoteHalted(const std::string& key) {
  World& world = cluster_.world;
  const bool may = cuts_left_ > 0 && !world.healed() && !world.options().calm();
  if (!may || !world.Happens(3)) {
    return;
  }
  --cuts_left_;
  world.Count("a halted worker hears nothing");
  cut_halted_.insert(key);
  const Duration time = FromSeconds(0.2 + 1.8 * world.random().Uniform());
  cluster_.streams.Block(cluster_.fleet.at(key), time, true, true, false);
}

void FaultInjector::LookForPhase() {
  World& world = cluster_.world;
  if (phase_.empty() || cluster_.coordinator.Describe().phase() != phase_) {
    return;
  }
  world.Count("notice while " + std::exchange(phase_, ""));
  world.After(0, 150, [&world, call = std::exchange(once_in_phase_, nullptr)] {
    if (!world.ended() && !world.healed()) {
      call();
    }
  });
}

void FaultInjector::HealAll() {
  World& world = cluster_.world;
  world.Note("all faults are over, two workers come");
  world.Heal();
  phase_.clear();
  cluster_.links.Mend();
  cluster_.store.Mend();
  for (const auto& [key, worker] : cluster_.fleet.workers()) {
    worker->slowdown = worker->link_slowdown = 1;
    worker->trainer.lowering = Lowering::kWorks;
    worker->trainer.fails = false;
    worker->trainer.changes.until = Time();
  }
  if (!cluster_.coordinator.runs()) {
    cluster_.coordinator.StartAfter(std::chrono::seconds(3));
  }
  const int kinds = world.options().demands_alike ? world.options().arithmetics : 1;
  for (int i = 0; i < 2 * kinds; ++i) {  // Two that the job takes, whatever it demands.
    cluster_.members.Spawn("");
  }
}

}  // namespace heddle::elastic
