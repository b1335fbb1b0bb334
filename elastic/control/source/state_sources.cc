#include "elastic/control/source/state_sources.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "elastic/control/source/replica_placement.h"

namespace heddle::elastic {
namespace {

// How many generations are remembered for their snapshots. For an older snapshot to be the newest,
// the plan would have changed this often without another one.
constexpr size_t kMaxSnapshotSources = 4;

// The least share of the state whose move is taken as a measurement of the rate; the time of a
// smaller move is mostly fixed costs.
constexpr double kLeastShareMeasured = 0.1;

// A survivor's report about the generation whose state counts.
struct Survivor {
  int64_t applied_step = 0;
  int64_t norm_step = 0;
  double norm = 0;
  bool not_finite = false;
  bool voted = false;
};

std::optional<Survivor> SurvivorOf(const wire::Halted& halted, int64_t generation) {
  if (halted.staged_generation() == generation) {
    // Its Go was lost, so no member can have completed a step since.
    return Survivor{.applied_step = halted.staged_step(), .norm_step = halted.staged_step()};
  }
  if (halted.held_generation() == generation) {
    return Survivor{halted.applied_step(), halted.norm_step(), halted.norm(), halted.not_finite(),
                    halted.voted()};
  }
  return std::nullopt;
}

}  // namespace

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

// Settles the step. Let T be the last step whose norm a survivor knows. All members voted on T, so
// each survivor has T applied, or T-1 with complete gradients, and T can be applied everywhere (or
// counts everywhere without its update, if the vote refused it). If the survivors together hold
// every parameter, this is a state to continue from.
std::optional<SourceOption> StateSources::Live(const Survey& halted,
                                               const Generations& generations) const {
  const auto& held = generations.held();
  if (!held) {
    return std::nullopt;
  }
  std::map<std::string, Survivor> survivors;
  SourceOption option{.source = Source::kLive, .step = -1};
  for (const auto& [name, words] : halted) {
    const auto survivor = SurvivorOf(words, held->number);
    if (generations.IsMember(name) && survivor) {
      option.step = std::max(option.step, survivor->norm_step);
      survivors[name] = *survivor;
    }
  }
  std::set<int32_t> parameters;
  bool settle = false;
  double norm = 0;
  bool skip = false;
  for (const auto& [name, survivor] : survivors) {
    if (survivor.norm_step == option.step) {
      norm = survivor.norm;
      skip = survivor.not_finite;
    }
    const bool behind = survivor.applied_step == option.step - 1 && survivor.voted;
    const bool refused = refusals_.Has(name, held->number, RefusedState::kTensors);
    if (refused || (survivor.applied_step != option.step && !behind)) {
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
    option.settle->set_skip(skip);
  }
  // The share of the lost members is copied to others; most of the rest stays where it is.
  const auto members = static_cast<double>(held->plan.members.size());
  option.bytes = state_bytes_ * (1 - static_cast<double>(held->members.size()) / members);
  return option;
}

// The newest snapshot of which every shard has a holder. The record of its step must be known: the
// job continues after that step, and no worker would report it again.
std::optional<SourceOption> StateSources::InMemory(const Survey& halted, int64_t known_step) const {
  struct Found {
    std::vector<std::string> holders;
    std::set<int32_t> owners;
    double bytes = 0;
    double parts = 0;
  };
  std::map<std::pair<int64_t, int64_t>, Found> found;  // By step and generation.
  for (const auto& [name, words] : halted) {
    for (const wire::Halted::Replicas& replicas : words.replicas()) {
      const auto source = snapshots_.find(replicas.generation());
      if (source == snapshots_.end() || replicas.step() < 0 ||
          replicas.step() > std::min(known_step, source->second.last_step) ||
          refusals_.Has(name, replicas.generation(), replicas.step())) {
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
    const std::vector<int32_t>& owners = snapshots_.at(generation).owners;
    if (!owners.empty() && std::includes(snapshot.owners.begin(), snapshot.owners.end(),
                                         owners.begin(), owners.end())) {
      return SourceOption{.source = Source::kReplicas,
                          .step = step,
                          .snapshot_generation = generation,
                          .holders = snapshot.holders,
                          .replicas = ReplicasOf(halted, generation, step, snapshot.holders),
                          // Shards are held several times: the mean size is multiplied.
                          .bytes = state_bytes_ > 0 ? state_bytes_
                                                    : snapshot.bytes / snapshot.parts *
                                                          static_cast<double>(owners.size())};
    }
  }
  return std::nullopt;
}

wire::Start::Replicas StateSources::ReplicasOf(const Survey& halted,
                                               int64_t generation,
                                               int64_t step,
                                               const std::vector<std::string>& holders) const {
  const SnapshotSource& source = snapshots_.at(generation);
  wire::Start::Replicas message;
  message.set_generation(generation);
  message.set_plan_json(source.plan_json);
  for (const std::string& name : holders) {
    for (const wire::Halted::Replicas& here : halted.at(name).replicas()) {
      if (here.generation() == generation && here.step() == step) {
        wire::Start::Replicas::Holder& holder = *message.add_holders();
        holder.set_worker(name);
        std::copy_if(here.owners().begin(), here.owners().end(),
                     google::protobuf::RepeatedFieldBackInserter(holder.mutable_owners()),
                     [&](int32_t rank) {
                       return std::binary_search(source.owners.begin(), source.owners.end(), rank);
                     });
      }
    }
  }
  return message;
}

std::optional<SourceOption> StateSources::Stored(const Saves& saves) const {
  if (!saves.committed().empty()) {
    return SourceOption{
        .source = Source::kCheckpoint, .step = saves.committed().back(), .bytes = state_bytes_};
  }
  if (!saves.unsound().empty()) {
    return std::nullopt;
  }
  return SourceOption{.source = Source::kInitial};
}

double StateSources::PredictedSeconds(const SourceOption& option,
                                      int64_t newest_step,
                                      double step_seconds,
                                      const RecoveryPolicy& policy) const {
  const double again = static_cast<double>(newest_step - option.step) * step_seconds;
  if (const auto rate = measured_rates_.find(option.source); rate != measured_rates_.end()) {
    return again + option.bytes / rate->second;
  }
  switch (option.source) {
    case Source::kInitial:
      break;
    case Source::kCheckpoint:
      return again + option.bytes / policy.storage_bytes_per_second;
    case Source::kReplicas:
      return again + option.bytes / policy.replica_bytes_per_second;
    case Source::kLive:
      return again + option.bytes / policy.live_bytes_per_second;
  }
  return again;
}

std::vector<SourceOption> StateSources::Options(const Survey& halted,
                                                const Generations& generations,
                                                const Steps& steps,
                                                const Saves& saves,
                                                const RecoveryPolicy& policy) {
  std::vector<SourceOption> options;
  if (auto snapshot = InMemory(halted, steps.known())) {
    state_bytes_ = snapshot->bytes;
    options.push_back(*std::move(snapshot));
  }
  if (auto live = Live(halted, generations)) {
    options.push_back(*std::move(live));
  }
  if (auto stored = Stored(saves)) {
    options.push_back(*std::move(stored));
  }
  int64_t newest_step = steps.known();
  for (const SourceOption& option : options) {
    newest_step = std::max(newest_step, option.step);
  }
  double step_seconds = steps.seconds();
  if (generations.held() && !(step_seconds > 0 && std::isfinite(step_seconds))) {
    step_seconds = generations.held()->plan.predicted_step_seconds;  // No step has been measured.
  }
  for (SourceOption& option : options) {
    option.seconds = PredictedSeconds(option, newest_step, step_seconds, policy);
  }
  std::sort(options.begin(), options.end(), [](const SourceOption& a, const SourceOption& b) {
    return std::tuple(a.seconds, -a.step, b.source) < std::tuple(b.seconds, -b.step, a.source);
  });
  std::stable_partition(options.begin(), options.end(),
                        [&](const SourceOption& option) { return option.source == policy.prefer; });
  return options;
}

void StateSources::RefuseSnapshot(int64_t generation, int64_t step) {
  snapshots_.at(generation).last_step = step - 1;
}

void StateSources::VoidAfter(int64_t step) {
  for (auto& [generation, source] : snapshots_) {
    source.last_step = std::min(source.last_step, step);
  }
}

void StateSources::NoteStateBytes(int64_t bytes) {
  state_bytes_ = bytes > 0 ? static_cast<double>(bytes) : state_bytes_;
}

void StateSources::NoteMove(Source source, const std::map<std::string, wire::Ready>& ready) {
  double seconds = 0;
  int64_t bytes = 0;
  for (const auto& [name, message] : ready) {
    seconds = std::max(seconds, message.seconds());
    for (const auto& [kind, amount] : message.moved_bytes()) {
      bytes += amount;
    }
  }
  const auto moved = static_cast<double>(bytes);
  if (seconds > 0 && std::isfinite(seconds) && moved > 0 &&
      moved >= kLeastShareMeasured * state_bytes_) {
    measured_rates_[source] = moved / seconds;
  }
}

// ---- Snapshots in memory ----

std::vector<std::vector<int32_t>> HoldersOf(const PlanOutcome& plan,
                                            const Roster& roster,
                                            const JobPolicy& policy) {
  if (policy.replicate_every <= 0) {
    return {};
  }
  std::vector<ReplicaMember> members;
  for (size_t rank = 0; rank < plan.members.size(); ++rank) {
    const Worker& worker = roster.at(plan.members[rank]);
    members.push_back({.name = worker.name,
                       .host = worker.host,
                       .failure_domain = worker.failure_domain,
                       .owns = rank < plan.parameters.size() && !plan.parameters[rank].empty()});
  }
  return PlaceReplicas(members, policy.replica_copies);
}

void StateSources::BeginGeneration(const DurableGeneration& held,
                                   int64_t step,
                                   const JobPolicy& policy) {
  refusals_.BeginGeneration(snapshots_);
  VoidAfter(step);
  if (policy.replicate_every <= 0) {
    return;
  }
  SnapshotSource& source = snapshots_[held.number];
  source.plan_json = held.plan.plan_json;
  for (size_t rank = 0; rank < held.plan.parameters.size(); ++rank) {
    if (!held.plan.parameters[rank].empty()) {
      source.owners.push_back(static_cast<int32_t>(rank));
    }
  }
  while (snapshots_.size() > kMaxSnapshotSources) {
    snapshots_.erase(snapshots_.begin());
  }
}

Status StateSources::Check(const SourceOption& chosen) const {
  if (chosen.source != Source::kReplicas) {
    return Status::Ok();
  }
  const auto source = snapshots_.find(chosen.snapshot_generation);
  if (source == snapshots_.end()) {
    return InternalError("nobody knows the shards of a snapshot of generation {}",
                         chosen.snapshot_generation);
  }
  std::set<int32_t> present;
  for (const wire::Start::Replicas::Holder& holder : chosen.replicas.holders()) {
    present.insert(holder.owners().begin(), holder.owners().end());
  }
  if (present.size() != source->second.owners.size()) {
    return InternalError("{} shards of {} of a snapshot are held", present.size(),
                         source->second.owners.size());
  }
  return Status::Ok();
}

}  // namespace heddle::elastic
