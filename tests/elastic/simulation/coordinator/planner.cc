#include "tests/elastic/simulation/coordinator/planner.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {
namespace {

// Pipelines of up to three of the names each, all of which hold all parameters.
SimPlan Pipelines(const std::vector<std::string>& names, Random& random) {
  SimPlan plan;
  size_t at = 0;
  while (at < names.size()) {
    const size_t stages = std::min(names.size() - at, 1 + random.Below(3));
    for (size_t stage = 0; stage < stages; ++stage) {
      std::vector<int32_t> parameters;
      for (int32_t p = 0; p < kSimParameters; ++p) {
        if (static_cast<size_t>(p) * stages / kSimParameters == stage) {
          parameters.push_back(p);
        }
      }
      plan.emplace_back(names[at + stage], parameters);
    }
    at += stages;
  }
  return plan;
}

}  // namespace

void SimPlanner::Find(CoordinatorProcess& asker, const PlanRequest& request) {
  Queue& queue = queues_[asker.life()];
  queue.asked = request;
  if (!queue.busy) {
    Begin(asker);
  }
}

void SimPlanner::Begin(CoordinatorProcess& asker) {
  Queue& queue = queues_[asker.life()];
  if (!queue.asked) {
    return;
  }
  const PlanOutcome outcome = PlanFor(*std::exchange(queue.asked, std::nullopt));
  queue.busy = true;
  cluster_.world.At(DrawEnd(), [this, outcome, &asker, &queue] {
    if (asker.ended()) {
      return;
    }
    queue.busy = false;
    asker.Tell(Planned{outcome});
    if (!asker.ended() && !queue.busy) {
      Begin(asker);
    }
  });
}

Time SimPlanner::DrawEnd() {
  World& world = cluster_.world;
  const auto usual = static_cast<double>(world.options().planner_ms);
  double most = world.Happens(5) ? std::max(600.0, usual) : usual;
  if (!took_long_ && world.Happens(150)) {
    took_long_ = true;
    world.Count("planned for long");
    most = 200'000;
  }
  return std::max(delays_until_, world.Within(most > 600 ? most / 2 : most / 80, most));
}

// They would slow the job; whoever is not heard just now, most of all. Members that are all silent
// beside a worker that stands by have nobody to speak for them.
void SimPlanner::LeaveSomeOut(std::vector<std::string>& names) {
  World& world = cluster_.world;
  if (names.size() < 2 || world.options().calm()) {
    return;
  }
  const auto unheard =
      std::stable_partition(names.begin(), names.end(), [&](const std::string& name) {
        const SimWorker* worker = cluster_.fleet.Named(name);
        return worker == nullptr || worker->control.blocked_until() <= world.now();
      });
  if (unheard != names.end() && unheard != names.begin() && world.Happens(2)) {
    names.erase(unheard, names.end());
  } else if (world.Happens(4)) {
    names.resize(names.size() - 1 - world.random().Below(names.size() / 2));
  }
}

PlanOutcome SimPlanner::PlanFor(const PlanRequest& request) {
  World& world = cluster_.world;
  PlanOutcome outcome;
  outcome.request_id = request.id;
  for (const Candidate& candidate : request.candidates) {
    if (candidate.profile_json == kAbsurdProfile) {
      world.Count("no plan for an absurd profile");
      outcome.status = InvalidArgumentError("worker {}: a rate is no number", candidate.name);
      return outcome;
    }
  }
  if (world.now() < refuses_until_ || world.Happens(40)) {
    world.Count("plan refused");
    outcome.status = ResourceExhaustedError("no memory to plan with");
    return outcome;
  }
  if (static_cast<size_t>(request.links.places_size()) != request.candidates.size()) {
    world.Fail("a plan is looked for without a place for each candidate");
  }
  world.Count("links known to a plan", request.links.pairs_size());
  std::vector<std::string> names;
  for (const Candidate& candidate : request.candidates) {
    names.push_back(candidate.name);
  }
  for (size_t i = world.options().priced() ? 0 : names.size(); i > 1; --i) {
    std::swap(names[i - 1], names[world.random().Below(i)]);
  }
  LeaveSomeOut(names);
  const SimPlan plan = request.former_plan_json.empty() ? Pipelines(names, world.random())
                                                        : DecodeSimPlan(request.former_plan_json);
  outcome.plan_json = EncodeSimPlan(request.generation, plan);
  outcome.parameter_count = kSimParameters;
  for (const auto& [name, parameters] : plan) {
    outcome.members.push_back(name);
    outcome.program_hashes.push_back(Hash64(outcome.plan_json + name));
    outcome.parameters.push_back(parameters);
  }
  outcome.predicted_step_seconds = 0.03 / static_cast<double>(plan.size());
  outcome.current_step_seconds = request.current_runs ? 0.05 : 0;
  if (world.options().priced()) {
    cluster_.prices.Price(request, outcome);
  }
  return outcome;
}

}  // namespace heddle::elastic
