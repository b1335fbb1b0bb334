#include "elastic/control/outcome/outcomes.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace heddle::elastic {
namespace {

// The uncertainty from which on steps are known well enough; a gain below it counts for nothing.
constexpr double kWellKnown = 0.02;

bool IsKnown(const StepLevel& level) {
  return level.Uncertainty() <= kWellKnown || level.steps >= StepTimes::kMax;
}

// True if steps are slower than before by more than the noise of both.
bool IsSlower(const StepLevel& now, const StepLevel& before) {
  const double noise = std::max(kWellKnown, std::hypot(now.Uncertainty(), before.Uncertainty()));
  return now.seconds > (1 + noise) * before.seconds;
}

bool IsSame(const Change::Party& a, const Change::Party& b, double threshold) {
  return a.profile == b.profile && a.slowdown <= threshold * b.slowdown &&
         b.slowdown <= threshold * a.slowdown;
}

void Log(const Outcome& outcome, std::string verdict, Outbox& out) {
  if (outcome.before_seconds) {
    out.Log("plan_outcome", {{"generation", outcome.generation},
                             {"promised_seconds", outcome.promised_seconds},
                             {"realised_seconds", outcome.realised_seconds},
                             {"before_seconds", *outcome.before_seconds},
                             {"verdict", std::move(verdict)}});
  } else {
    out.Log("plan_outcome", {{"generation", outcome.generation},
                             {"promised_seconds", outcome.promised_seconds},
                             {"realised_seconds", outcome.realised_seconds},
                             {"verdict", std::move(verdict)}});
  }
}

}  // namespace

void Outcomes::Begin(int64_t generation,
                     std::optional<Promise> promise,
                     bool goes_back,
                     Outbox& out) {
  if (const auto outcome = std::exchange(going_back_, std::nullopt); outcome && goes_back) {
    Log(*outcome, "taken_back", out);
  }
  generation_ = generation;
  promise_ = std::move(promise);
}

std::optional<FormerPlan> Outcomes::Judge(const StepTimes& times,
                                          const Circumstances& now,
                                          Outbox& out) {
  if (const auto outcome = std::exchange(going_back_, std::nullopt)) {
    Log(*outcome, "kept", out);
  }
  const auto level = promise_ ? times.Newest(StepTimes::kMax) : std::nullopt;
  if (!level || !IsKnown(*level) || (!now.steady && times.counted() < StepTimes::kKept)) {
    return std::nullopt;
  }
  Promise promise = *std::exchange(promise_, std::nullopt);
  const std::optional<StepLevel>& before = promise.before;
  const bool pays = before && (level->seconds - before->seconds) * now.steps_left >
                                  now.gain_over_cost * promise.cost_seconds;
  const bool goes_back = before && IsSlower(*level, *before) && pays && now.steady && now.possible;
  const Outcome outcome{.generation = generation_,
                        .promised_seconds = promise.step_seconds,
                        .realised_seconds = level->seconds,
                        .before_seconds = before ? std::optional(before->seconds) : std::nullopt};
  if (!goes_back) {
    Log(outcome, "kept", out);
    return std::nullopt;
  }
  going_back_ = outcome;
  taken_back_.push_back(promise.change);
  return FormerPlan{.plan_json = std::move(promise.plan_json),
                    .members = std::move(promise.change.members),
                    .step_seconds = before->seconds};
}

bool Outcomes::WasTakenBack(const Change& change, double threshold) const {
  return std::ranges::any_of(taken_back_, [&](const Change& other) {
    return other.members == change.members &&
           std::ranges::equal(other.candidates, change.candidates,
                              [&](const auto& a, const auto& b) {
                                return a.first == b.first && IsSame(a.second, b.second, threshold);
                              });
  });
}

}  // namespace heddle::elastic
