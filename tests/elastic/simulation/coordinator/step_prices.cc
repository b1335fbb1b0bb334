#include "tests/elastic/simulation/coordinator/step_prices.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/hash.h"
#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {
namespace {

using Slowdowns = std::map<std::string, double>;

// Of the work, by the slowdowns that a plan counts on.
double ShareOf(const std::string& name, const Slowdowns& slowdowns) {
  double all = 0;
  for (const auto& [member, slowdown] : slowdowns) {
    all += 1 / slowdown;
  }
  return 1 / slowdowns.at(name) / all;
}

// The part of a step in which gradients are exchanged, where speeds are as profiled and links have
// their full rate.
constexpr double kExchangePart = 0.3;
// Of a step beside the work: its vote.
constexpr double kVoteSeconds = 0.005;
// For so long at least others use a machine, and for twice as long they leave it alone; at most for
// four times as long.
constexpr double kShortestTurnMs = 1000;

int64_t GenerationOf(const std::string& plan_json) {
  return std::stoll(plan_json);
}

}  // namespace

// Of a worker as its profile says, for all of a step.
double StepPrices::WorkSeconds() const {
  const SimOptions& options = cluster_.world.options();
  return 0.001 * static_cast<double>(options.step_ms) * options.workers;
}

// 0: it has a member of which nothing is known.
double StepPrices::PredictedSeconds(const Found& plan, const Slowdowns& slowdowns) const {
  double most = 0;
  for (const auto& [name, counted_on] : plan.slowdowns) {
    const auto known = slowdowns.find(name);
    if (known == slowdowns.end()) {
      return 0;
    }
    most = std::max(most, ShareOf(name, plan.slowdowns) * known->second);
  }
  return WorkSeconds() * most * cluster_.world.options().predicted_percent / 100;
}

void StepPrices::Price(const PlanRequest& request, PlanOutcome& outcome) {
  Slowdowns slowdowns;
  for (const Candidate& candidate : request.candidates) {
    slowdowns[candidate.name] = candidate.slowdown;
  }
  Found found{.request = request, .outcome = {}, .slowdowns = {}};
  if (!request.former_plan_json.empty()) {
    found.slowdowns = at(GenerationOf(request.former_plan_json)).slowdowns;
  } else {
    for (const std::string& member : outcome.members) {
      found.slowdowns[member] = slowdowns.at(member);
    }
  }
  outcome.predicted_step_seconds = PredictedSeconds(found, slowdowns);
  outcome.current_step_seconds =
      request.current_runs
          ? PredictedSeconds(at(GenerationOf(request.current_plan_json)), slowdowns)
          : 0;
  found.outcome = outcome;
  found_[request.generation] = std::move(found);
}

double StepPrices::SecondsOf(const SimWorker& worker, int64_t generation) {
  const Slowdowns& slowdowns = at(generation).slowdowns;
  const SimOptions& options = cluster_.world.options();
  std::set<std::string> members;
  for (const auto& [name, counted_on] : slowdowns) {
    members.insert(name);
  }
  const uint64_t luck = Hash64(fmt::format("{} {}", options.seed, fmt::join(members, " "))) % 3;
  const double misjudged = luck == 0 ? 1 + options.misjudged_percent / 100.0 : 1;
  const double work =
      WorkSeconds() * ShareOf(worker.member->name(), slowdowns) * worker.slowdown * misjudged;
  return work + kExchangePart * WorkSeconds() / options.workers * (worker.link_slowdown - 1);
}

double StepPrices::DrawNoise(SimWorker& worker) {
  World& world = cluster_.world;
  const SimOptions& options = world.options();
  if (options.shared_percent > 0 && world.now() >= worker.turn_ends) {
    const bool first = worker.turn_ends == Time();
    worker.held_up = first ? world.random().Below(2) == 0 : !worker.held_up;
    const double least = (worker.held_up ? 1 : 2) * kShortestTurnMs;
    worker.turn_ends = world.Within(least, 4 * least);
  }
  const double noise = options.noise_percent / 100.0 * (2 * world.random().Uniform() - 1);
  return (1 + noise) * (worker.held_up ? 1 + options.shared_percent / 100.0 : 1);
}

double StepPrices::SecondsOf(int64_t generation) {
  double most = 0;
  for (const auto& [name, counted_on] : at(generation).slowdowns) {
    if (const SimWorker* worker = cluster_.fleet.Named(name)) {
      most = std::max(most, SecondsOf(*worker, generation));
    }
  }
  return most + kVoteSeconds;
}

double StepPrices::OverBest(int64_t generation) {
  double speed = 0;
  for (const SimWorker* worker : cluster_.fleet.Running()) {
    speed += 1 / worker->slowdown;
  }
  return (SecondsOf(generation) - kVoteSeconds) / (WorkSeconds() / speed);
}

double StepPrices::WorstEstimate(int64_t generation) {
  double most = 1;
  for (const auto& [name, counted_on] : at(generation).slowdowns) {
    if (const SimWorker* worker = cluster_.fleet.Named(name)) {
      most = std::max({most, counted_on / worker->slowdown, worker->slowdown / counted_on});
    }
  }
  return most;
}

}  // namespace heddle::elastic
