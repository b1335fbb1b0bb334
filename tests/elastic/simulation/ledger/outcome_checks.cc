#include "tests/elastic/simulation/ledger/outcome_checks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {
namespace {

// By then everything is noticed, changed, judged and taken back.
constexpr int64_t kRestSteps = 250;
// By so many steps a plan is judged, and so long before the next one is in force.
constexpr int kMeasuredSteps = 16;
constexpr Duration kChange = std::chrono::seconds(1);
// A change costs less.
constexpr double kWorthSeconds = 2;

// The slowest of all makes a step, and so noise makes it longer, at most by so much.
double NoiseOf(const SimOptions& options) {
  return (1 + options.noise_percent / 100.0) * (1 + options.shared_percent / 100.0);
}

// Votes take unlike times.
double ToleranceOf(const SimOptions& options) {
  return 1.1 * NoiseOf(options);
}

std::string TextOf(const LogEvent& event, const char* field) {
  return std::get<std::string>(*event.Find(field));
}

int64_t NumberOf(const LogEvent& event, const char* field) {
  return std::get<int64_t>(*event.Find(field));
}

double SecondsOf(const LogEvent& event, const char* field) {
  return std::get<double>(*event.Find(field));
}

// Of a plan without its generation.
std::string ShapeOf(const std::string& plan_json) {
  return plan_json.substr(plan_json.find(' '));
}

bool AreAlike(double a, double b, double tolerance) {
  return a < tolerance * b && b < tolerance * a;
}

}  // namespace

void OutcomeChecks::NoteFault(FaultKind kind) {
  ++faults_;
  last_fault_step_ = step_;
  if (kind != FaultKind::kJoin) {
    disturbed_at_ = cluster_.world.now();
  }
}

void OutcomeChecks::Take(const LogEvent& event) {
  if (!cluster_.world.options().priced()) {
    return;
  }
  if (event.kind == "step") {
    TakeStep(event);
  } else if (event.kind == "decision") {
    TakeDecision(event);
  } else if (event.kind == "plan_outcome") {
    TakeOutcome(event);
  } else if (event.kind == "drift") {
    CheckDrift(event);
  } else if (event.kind == "plan_kept" &&
             TextOf(event, "reason").find("was tried before") != std::string::npos) {
    cluster_.world.Count("tried before");
  }
}

// After the last step workers end.
void OutcomeChecks::TakeStep(const LogEvent& event) {
  World& world = cluster_.world;
  step_ = NumberOf(event, "step");
  if (step_ + 1 == world.options().steps) {
    const int64_t generation = NumberOf(event, "generation");
    world.result().over_best = cluster_.prices.OverBest(generation);
    world.result().worst_estimate = cluster_.prices.WorstEstimate(generation);
  }
}

void OutcomeChecks::TakeDecision(const LogEvent& event) {
  World& world = cluster_.world;
  const int64_t generation = NumberOf(event, "generation");
  const std::string cause = TextOf(event, "cause");
  const int64_t follows = NumberOf(event, "follows");
  world.result().planned_step = step_;
  if (taken_back_by_) {
    world.Fail(fmt::format("nothing is said of what {} takes back", *taken_back_by_));
  }
  if (step_ - last_fault_step_ > kRestSteps) {
    world.Fail(
        fmt::format("generation {} begins for {}, and nothing has happened", generation, cause));
  }
  if (cause == "take_back") {
    taken_back_by_ = generation;
  } else if (cause == "join" || cause == "drift" || cause == "improve") {
    const Change change{.cause = cause, .follows = follows, .at = world.now(), .faults = faults_};
    changes_[generation] = change;
    CheckNew(generation);
    CheckScale(event, change);
  }
}

void OutcomeChecks::CheckTakenBack(int64_t generation, int64_t judged) {
  const StepPrices& prices = cluster_.prices;
  const int64_t former = changes_.at(judged).follows;
  if (ShapeOf(prices.at(generation).outcome.plan_json) !=
      ShapeOf(prices.at(former).outcome.plan_json)) {
    cluster_.world.Fail(fmt::format("generation {} has another plan than {}", generation, former));
  }
}

bool OutcomeChecks::AreSame(int64_t generation, int64_t other) const {
  const StepPrices& prices = cluster_.prices;
  // A plan may be refined, but not one that was taken back.
  const double limit = cluster_.coordinator.job().policy.drift.threshold;
  const double threshold = changes_.at(other).taken_back ? limit : std::sqrt(limit);
  const auto same = [&](const Candidate& a, const Candidate& b) {
    return a.name == b.name && AreAlike(a.slowdown, b.slowdown, threshold);
  };
  return prices.at(changes_.at(generation).follows).outcome.members ==
             prices.at(changes_.at(other).follows).outcome.members &&
         std::ranges::equal(prices.at(generation).request.candidates,
                            prices.at(other).request.candidates, same);
}

void OutcomeChecks::CheckNew(int64_t generation) {
  for (const auto& [other, before] : changes_) {
    const bool undisturbed = before.faults == changes_.at(generation).faults;
    if (other != generation && (before.taken_back || undisturbed) && AreSame(generation, other)) {
      cluster_.world.Fail(fmt::format("generation {} is made for what {} was{}", generation, other,
                                      before.taken_back ? ", which was taken back" : ""));
    }
  }
}

bool OutcomeChecks::IsMeasured(int64_t generation, Time until) const {
  const double step_seconds = cluster_.prices.SecondsOf(generation);
  const Time since = until - FromSeconds(kMeasuredSteps * step_seconds) - kChange;
  return disturbed_at_ < since;
}

void OutcomeChecks::CheckScale(const LogEvent& event, const Change& change) {
  const double scale = SecondsOf(event, "scale");
  if (std::isnan(scale) || !IsMeasured(change.follows, change.at)) {
    return;
  }
  const PlanOutcome& found = cluster_.prices.at(NumberOf(event, "generation")).outcome;
  const double known = cluster_.prices.SecondsOf(change.follows) /
                       (found.current_step_seconds > 0
                            ? found.current_step_seconds
                            : cluster_.prices.at(change.follows).outcome.predicted_step_seconds);
  cluster_.world.Count("scaled");
  if (!AreAlike(scale, known, ToleranceOf(cluster_.world.options()))) {
    cluster_.world.Fail(
        fmt::format("the planner is wrong by {:.3g}, and {:.3g} is taken for it", known, scale));
  }
}

void OutcomeChecks::TakeOutcome(const LogEvent& event) {
  const int64_t generation = NumberOf(event, "generation");
  const auto found = changes_.find(generation);
  if (found == changes_.end() || found->second.judged) {
    return cluster_.world.Fail(fmt::format(
        "generation {} is judged, for which there was no choice, or twice", generation));
  }
  Change& change = found->second;
  change.judged = true;
  change.taken_back = TextOf(event, "verdict") == "taken_back";
  if (change.taken_back != taken_back_by_.has_value()) {
    return cluster_.world.Fail(
        fmt::format("generation {} is {}, and the plan before it {} in force again", generation,
                    TextOf(event, "verdict"), taken_back_by_ ? "is" : "is not"));
  }
  if (change.taken_back) {
    CheckTakenBack(*std::exchange(taken_back_by_, std::nullopt), generation);
  }
  CheckVerdict(event, generation, change);
}

void OutcomeChecks::CheckVerdict(const LogEvent& event, int64_t generation, const Change& change) {
  World& world = cluster_.world;
  const std::string verdict = TextOf(event, "verdict");
  if (!IsMeasured(change.follows, change.at)) {
    world.Count("judged beside a disturbance");
    return;
  }
  world.Count("judged " + verdict);
  const double now = cluster_.prices.SecondsOf(generation);
  const double before = cluster_.prices.SecondsOf(change.follows);
  const double tolerance = ToleranceOf(world.options());
  const bool could_go_back =
      event.Find("before_seconds") != nullptr &&
      (now - before) * static_cast<double>(world.options().steps - step_) > kWorthSeconds;
  if (change.taken_back ? NoiseOf(world.options()) * now < before
                        : could_go_back && now > tolerance * before) {
    world.Fail(fmt::format("a step takes {:.4g} s and took {:.4g} s, and generation {} is {}", now,
                           before, generation, verdict));
  }
  if (!AreAlike(SecondsOf(event, "realised_seconds"), now, tolerance)) {
    world.Fail(fmt::format("a step takes {:.4g} s, and {:.4g} s are told", now,
                           SecondsOf(event, "realised_seconds")));
  }
}

void OutcomeChecks::CheckDrift(const LogEvent& event) {
  World& world = cluster_.world;
  const std::string name = TextOf(event, "worker");
  const double slowdown = SecondsOf(event, "slowdown");
  const SimWorker* worker = cluster_.fleet.Named(name);
  const int64_t generation = cluster_.ledger.newest_go();
  const bool measured = IsMeasured(generation, world.now());
  constexpr double kSeveralTimes = 4;
  if (!AreAlike(slowdown, cluster_.prices.at(generation).slowdowns.at(name), kSeveralTimes)) {
    int64_t& most = world.result().noticed_steps;
    most = std::max(most, step_ - last_fault_step_);
  }
  const double tolerance = 1.15 * (1 + world.options().noise_percent / 200.0);
  if (measured && worker != nullptr && !AreAlike(slowdown, worker->slowdown, tolerance)) {
    world.Fail(fmt::format("{} takes {:.3g} times as long, and {:.3g} is taken for it", name,
                           worker->slowdown, slowdown));
  }
}

}  // namespace heddle::elastic
