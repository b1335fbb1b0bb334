// Where a recovery takes the state from: survivors' tensors, a snapshot in workers' memory, a
// checkpoint, or the seed; whichever has the job where it was in the fewest seconds.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "elastic/control/coordinator_state.h"
#include "elastic/control/replica_placement.h"

namespace heddle::elastic {
namespace {

// Generations whose plans are kept for their snapshots. With more, the job would have changed its
// plan so often since that it took none meanwhile.
constexpr size_t kMostSnapshotSources = 4;

// A move of a smaller part of the state says more of its fixed costs than of a rate.
constexpr double kLeastShareMeasured = 0.1;

const char* NameOf(Source source) {
  switch (source) {
    case Source::kInitial:
      return "initial";
    case Source::kCheckpoint:
      return "checkpoint";
    case Source::kReplicas:
      return "replicas";
    case Source::kLive:
      return "live";
  }
  return "";
}

// What a survivor says of the generation whose state counts.
struct Survivor {
  int64_t applied_step = 0;
  int64_t norm_step = 0;
  double norm = 0;
  bool voted = false;
};

std::optional<Survivor> SurvivorOf(const wire::Halted& halted, int64_t generation) {
  if (halted.staged_generation() == generation) {
    // Its Go was lost; nobody can have stepped since.
    return Survivor{.applied_step = halted.staged_step(), .norm_step = halted.staged_step()};
  }
  if (halted.held_generation() == generation) {
    return Survivor{halted.applied_step(), halted.norm_step(), halted.norm(), halted.voted()};
  }
  return std::nullopt;
}

}  // namespace

// Settles the step. Let T be the last step whose norm some survivor knows: all had voted on T, so
// each holds T applied, or T-1 with complete gradients, and T is applied everywhere. If together
// they hold every parameter, that is a state to go on from.
std::optional<SourceOption> Coordinator::State::LiveSource() const {
  if (!held) {
    return std::nullopt;
  }
  std::map<std::string, Survivor> survivors;
  SourceOption option{.source = Source::kLive, .step = -1};
  for (const auto& [name, halted] : transition->halted) {
    const auto survivor = SurvivorOf(halted, held->number);
    if (IsMember(name) && survivor) {
      option.step = std::max(option.step, survivor->norm_step);
      survivors[name] = *survivor;
    }
  }
  std::set<int32_t> parameters;
  bool settle = false;
  double norm = 0;
  for (const auto& [name, survivor] : survivors) {
    if (survivor.norm_step == option.step) {
      norm = survivor.norm;
    }
    const bool behind = survivor.applied_step == option.step - 1 && survivor.voted;
    if (survivor.applied_step != option.step && !behind) {
      continue;
    }
    settle = settle || behind;
    option.holders.push_back(name);
    const auto& members = held->plan.members;
    const auto rank =
        static_cast<size_t>(std::find(members.begin(), members.end(), name) - members.begin());
    if (rank < held->plan.parameters.size()) {
      parameters.insert(held->plan.parameters[rank].begin(), held->plan.parameters[rank].end());
    }
  }
  if (option.step < 0 || static_cast<int32_t>(parameters.size()) != held->plan.parameter_count) {
    return std::nullopt;
  }
  if (settle) {
    option.settle.emplace();
    option.settle->set_step(option.step);
    option.settle->set_norm(norm);
  }
  // What the lost ones held is copied to those that take over; the rest stays where it is, mostly.
  const auto members = static_cast<double>(held->plan.members.size());
  option.bytes = state_bytes * (1 - static_cast<double>(held->members.size()) / members);
  return option;
}

// The newest snapshot of which every part is held by somebody. Its record must be known: the job
// goes on behind it, and nobody would log that step again.
std::optional<SourceOption> Coordinator::State::SnapshotInMemory() const {
  struct Found {
    std::vector<std::string> holders;
    std::set<int32_t> owners;
    double bytes = 0;
    double parts = 0;
  };
  std::map<std::pair<int64_t, int64_t>, Found> found;  // By step and generation.
  for (const auto& [name, halted] : transition->halted) {
    for (const wire::Halted::Replicas& replicas : halted.replicas()) {
      const auto source = snapshots.find(replicas.generation());
      if (source == snapshots.end() || replicas.step() < 0 ||
          replicas.step() > std::min(known_step, source->second.last_step)) {
        continue;
      }
      Found& snapshot = found[{replicas.step(), replicas.generation()}];
      if (snapshot.holders.empty() || snapshot.holders.back() != name) {
        snapshot.holders.push_back(name);
      }
      snapshot.owners.insert(replicas.owners().begin(), replicas.owners().end());
      snapshot.bytes += static_cast<double>(std::max<int64_t>(0, replicas.raw_bytes()));
      snapshot.parts += replicas.owners_size();
    }
  }
  for (auto newest = found.rbegin(); newest != found.rend(); ++newest) {
    const auto& [step, generation] = newest->first;
    const Found& snapshot = newest->second;
    const std::vector<int32_t>& owners = snapshots.at(generation).owners;
    if (!owners.empty() && std::includes(snapshot.owners.begin(), snapshot.owners.end(),
                                         owners.begin(), owners.end())) {
      return SourceOption{.source = Source::kReplicas,
                          .step = step,
                          .snapshot_generation = generation,
                          .holders = snapshot.holders,
                          // Parts are held several times; in the mean one is of this size.
                          .bytes = state_bytes > 0 ? state_bytes
                                                   : snapshot.bytes / snapshot.parts *
                                                         static_cast<double>(owners.size())};
    }
  }
  return std::nullopt;
}

std::optional<SourceOption> Coordinator::State::StoredSource() const {
  if (!checkpoints.empty()) {
    return SourceOption{
        .source = Source::kCheckpoint, .step = checkpoints.back(), .bytes = state_bytes};
  }
  if (!unsound.empty()) {
    return std::nullopt;  // To begin anew would lose the run without a word.
  }
  return SourceOption{.source = Source::kInitial};
}

double Coordinator::State::PredictedSeconds(const SourceOption& option, int64_t newest_step) const {
  double step_seconds = smoothed_step_seconds;
  if (held && !(step_seconds > 0 && std::isfinite(step_seconds))) {
    step_seconds = held->plan.predicted_step_seconds;  // No step has been measured.
  }
  const double again = static_cast<double>(newest_step - option.step) * step_seconds;
  if (const auto rate = measured_rates.find(option.source); rate != measured_rates.end()) {
    return again + option.bytes / rate->second;
  }
  switch (option.source) {
    case Source::kInitial:
      break;
    case Source::kCheckpoint:
      return again + option.bytes / policy().recovery.storage_bytes_per_second;
    case Source::kReplicas:
      return again + option.bytes / policy().recovery.replica_bytes_per_second;
    case Source::kLive:
      return again + option.bytes / policy().recovery.live_bytes_per_second;
  }
  return again;
}

std::vector<SourceOption> Coordinator::State::SourceOptions() {
  std::vector<SourceOption> options;
  if (auto snapshot = SnapshotInMemory()) {
    state_bytes = snapshot->bytes;
    options.push_back(*std::move(snapshot));
  }
  if (auto live = LiveSource()) {
    options.push_back(*std::move(live));
  }
  if (auto stored = StoredSource()) {
    options.push_back(*std::move(stored));
  }
  int64_t newest_step = known_step;
  for (const SourceOption& option : options) {
    newest_step = std::max(newest_step, option.step);
  }
  for (SourceOption& option : options) {
    option.seconds = PredictedSeconds(option, newest_step);
  }
  std::sort(options.begin(), options.end(), [](const SourceOption& a, const SourceOption& b) {
    return std::tuple(a.seconds, -a.step, b.source) < std::tuple(b.seconds, -b.step, a.source);
  });
  return options;
}

void Coordinator::State::ChooseSource(Time now) {
  Transition& t = *transition;
  const std::vector<SourceOption> options = SourceOptions();
  if (options.empty()) {
    return End(false, true, "no checkpoint is sound: " + unsound, now);
  }
  const SourceOption& chosen = options.front();
  std::string candidates;
  for (const SourceOption& option : options) {
    candidates += fmt::format(R"({}{{"source": "{}", "step": {}, "predicted_seconds": {:.9g}}})",
                              candidates.empty() ? "" : ", ", NameOf(option.source), option.step,
                              option.seconds);
  }
  Log("recovery_source", {{"chosen", std::string(NameOf(chosen.source))},
                          {"step", chosen.step},
                          {"candidates", RawJson{"[" + candidates + "]"}}});
  t.source = chosen.source;
  t.snapshot_generation = chosen.snapshot_generation;
  t.applied_step = chosen.step;
  t.settle = chosen.settle;
  t.holders = chosen.holders;
  t.steps_repeated = std::max(t.steps_repeated, known_step - t.applied_step);
  AskForPlan(now);
}

// What could not be read is not offered again. Nobody has gone on from it.
void Coordinator::State::RefuseSource(const std::string& reason, Time now) {
  const Transition& t = *transition;
  if (t.source == Source::kReplicas) {
    Log("replica_refused",
        {{"step", t.applied_step}, {"generation", t.snapshot_generation}, {"reason", reason}});
    snapshots.at(t.snapshot_generation).last_step = t.applied_step - 1;
    return BeginRecovery(now);
  }
  Log("checkpoint_refused", {{"step", t.applied_step}, {"reason", reason}});
  checkpoints.erase(std::remove(checkpoints.begin(), checkpoints.end(), t.applied_step),
                    checkpoints.end());
  if (checkpoints.empty()) {
    unsound = reason;
  }
  BeginRecovery(now);
}

void Coordinator::State::NoteMove(const Transition& move, int64_t bytes) {
  double seconds = 0;
  for (const auto& [name, ready] : move.ready) {
    seconds = std::max(seconds, ready.seconds());
  }
  const auto moved = static_cast<double>(bytes);
  if (seconds > 0 && std::isfinite(seconds) && moved > 0 &&
      moved >= kLeastShareMeasured * state_bytes) {
    measured_rates[move.source] = moved / seconds;
  }
}

// ---- Snapshots in memory ----

std::vector<std::vector<int32_t>> Coordinator::State::KeepersOf(const PlanOutcome& plan) const {
  if (policy().replicate_every <= 0) {
    return {};
  }
  std::vector<ReplicaMember> members;
  for (size_t rank = 0; rank < plan.members.size(); ++rank) {
    const Worker& worker = workers.at(plan.members[rank]);
    members.push_back({.name = worker.name,
                       .host = worker.host,
                       .failure_domain = worker.failure_domain,
                       .owns = rank < plan.parameters.size() && !plan.parameters[rank].empty()});
  }
  return PlaceReplicas(members, policy().replica_copies);
}

void Coordinator::State::RememberSnapshots() {
  if (policy().replicate_every <= 0) {
    return;
  }
  SnapshotSource& source = snapshots[held->number];
  source.plan_json = held->plan.plan_json;
  for (size_t rank = 0; rank < held->plan.parameters.size(); ++rank) {
    if (!held->plan.parameters[rank].empty()) {
      source.owners.push_back(static_cast<int32_t>(rank));
    }
  }
  while (snapshots.size() > kMostSnapshotSources) {
    snapshots.erase(snapshots.begin());
  }
}

void Coordinator::State::VoidSnapshotsAfter(int64_t step) {
  for (auto& [generation, source] : snapshots) {
    source.last_step = std::min(source.last_step, step);
  }
}

}  // namespace heddle::elastic
