#include "tests/elastic/simulation/history/history.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/random.h"

namespace heddle::elastic {
namespace {

constexpr double kWindowSeconds = 4;
constexpr double kLongestSeconds = 60;
constexpr double kShortestSeconds = 0.05;

// Of a fault that ends by itself: most are short, and some outlast every patience.
double DrawSeconds(Random& random) {
  const std::array most = {1.0, 6.0, 20.0, kLongestSeconds};
  const double limit = most[random.Below(most.size())];
  return kShortestSeconds + (limit - kShortestSeconds) * random.Uniform();
}

// In whole milliseconds, for whoever reads it.
double Rounded(double seconds) {
  return std::round(1000 * seconds) / 1000;
}

// A third of them are of those that need another one beside them to matter.
FaultKind DrawKind(Random& random) {
  constexpr std::array kOften = {FaultKind::kDrain, FaultKind::kAlter, FaultKind::kCutControl};
  return random.Below(3) == 0 ? kOften[random.Below(kOften.size())]
                              : static_cast<FaultKind>(random.Below(kFaultKinds));
}

Fault DrawFault(FaultKind kind, double at, Random& random) {
  return {kind, Rounded(at), Rounded(DrawSeconds(random)), random.Below(10'000)};
}

// What tries the state that a fault leaves things in, and that random kinds and times would meet
// rarely. Empty: nothing in particular.
std::vector<FaultKind> CompanyOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kDrain:  // It is known to the next coordinator, and when the worker is lost.
    case FaultKind::kCancelDrain:
    case FaultKind::kNotice:
      return {FaultKind::kRestart,           FaultKind::kCutPower, FaultKind::kCrashInActions,
              FaultKind::kDoubleCoordinator, FaultKind::kCutOff,   FaultKind::kStop};
    case FaultKind::kCutControl:  // Some train on while others begin again, and all come back.
    case FaultKind::kCutFromWorkers:
    case FaultKind::kCutToWorkers:
    case FaultKind::kElsewhere:
      return {FaultKind::kKill, FaultKind::kKillHalf, FaultKind::kRestart};
    case FaultKind::kAlter:  // Beside saves and moves of what is altered.
      return {FaultKind::kAlter, FaultKind::kDrain, FaultKind::kJoin, FaultKind::kKill};
    default:
      return {};
  }
}

// Some come together: a second one while the first is still being dealt with.
void AddFollower(std::vector<Fault>& faults, Random& random) {
  const Fault first = faults.back();
  const bool soon = random.Below(2) == 0;
  const double at = first.at + (soon ? 0 : 0.02 + 0.6 * random.Uniform());
  const std::vector<FaultKind> company = CompanyOf(first.kind);
  if (first.kind == FaultKind::kDamageCheckpoint) {  // Whoever needs it finds out.
    faults.push_back(DrawFault(FaultKind::kKillHalf, first.at, random));
  } else if (first.kind == FaultKind::kChangeMoves) {  // Something is to be moved meanwhile.
    faults.push_back(DrawFault(FaultKind::kKill, first.at + 0.05, random));
    faults.push_back(DrawFault(FaultKind::kJoin, first.at, random));
  } else if (!company.empty() && random.Below(3) > 0) {
    faults.push_back(DrawFault(company[random.Below(company.size())], at, random));
    if (random.Below(2) == 0) {
      faults.back().draw = first.draw;  // It meets the same worker.
    }
  } else if (random.Below(4) == 0) {
    faults.push_back(DrawFault(FaultKind::kKill, at, random));
  } else if (random.Below(8) == 0) {
    const auto kind = static_cast<FaultKind>(random.Below(kFaultKinds));
    faults.push_back(DrawFault(kind, at, random));
  }
}

// Mostly a few; some large ones, which are short.
void DrawSize(SimOptions& history, Random& random) {
  const uint64_t luck = random.Below(150);
  history.steps = 30 + 15 * static_cast<int64_t>(random.Below(3));
  if (luck == 0) {
    history.workers = kMaxOfSmallCluster + 1 +
                      static_cast<int>(random.Below(kMaxOfLargeCluster - kMaxOfSmallCluster));
    history.steps = 10;
  } else if (luck < 30) {
    history.workers = static_cast<int>(1 + random.Below(2));
  } else {
    history.workers = static_cast<int>(3 + random.Below(luck < 112 ? 3 : 6));
  }
  history.hosts = static_cast<int>(2 + random.Below(3));
  if (history.workers > kMaxOfSmallCluster) {
    history.hosts = (history.workers + 3) / 4;
  }
  history.domains = static_cast<int>(1 + random.Below(3));
}

}  // namespace

SimOptions DrawHistory(uint64_t seed) {
  Random random(StreamKey(seed, "history"));
  SimOptions history;
  history.seed = seed;
  DrawSize(history, random);
  history.replicate_every = std::array<int64_t, 4>{1, 3, 0, 7}[random.Below(4)];
  history.digest_every = std::array<int64_t, 4>{1, 3, 0, 7}[random.Below(4)];
  history.planner_ms = random.Below(4) == 0 ? 3000 : 80;
  history.checkpoint_every = random.Below(2) == 0 ? 10 : 4;
  history.replica_copies = static_cast<int>(1 + random.Below(2));
  history.tells_moves = random.Below(3) == 0;
  history.refused_every = std::array<int64_t, 3>{0, 2, 7}[random.Below(3)];
  history.stop_on_refused = history.refused_every == 7 && random.Below(4) == 0;
  history.product_patience = random.Below(4) == 0;
  history.patient_calls = random.Below(2) == 0;
  history.local = random.Below(8) == 0;
  const uint64_t count = random.Below(6);
  for (uint64_t i = 0; i < count; ++i) {
    const FaultKind kind = DrawKind(random);
    history.faults.push_back(DrawFault(kind, kWindowSeconds * random.Uniform(), random));
    if (kind == FaultKind::kAlter && history.digest_every == 0) {
      history.digest_every = 7;
    }
    AddFollower(history.faults, random);
  }
  return history;
}

SimOptions DrawControlHistory(uint64_t seed) {
  constexpr std::array kKinds = {FaultKind::kCutControl,   FaultKind::kCutFromWorkers,
                                 FaultKind::kCutToWorkers, FaultKind::kStopCoordinator,
                                 FaultKind::kJumpClock,    FaultKind::kJumpCoordinatorClock,
                                 FaultKind::kSlowStore,    FaultKind::kStoreErrors,
                                 FaultKind::kLate,         FaultKind::kElsewhere};
  Random random(StreamKey(seed, "control history"));
  SimOptions history;
  history.seed = seed;
  history.control_faults_only = true;
  history.workers = static_cast<int>(1 + random.Below(8));
  history.steps = 500;  // Longer than all faults: at the end nobody waits for steps.
  history.step_ms = 100;
  const uint64_t count = 1 + random.Below(4);
  for (uint64_t i = 0; i < count; ++i) {
    const FaultKind kind = kKinds[random.Below(kKinds.size())];
    history.faults.push_back(DrawFault(kind, 2 + 13 * random.Uniform(), random));
  }
  return history;
}

SimOptions DrawNoticeHistory(uint64_t seed) {
  Random random(StreamKey(seed, "notice history"));
  SimOptions history = DrawHistory(seed);
  history.notices_only = true;
  history.steps = 60;
  history.workers = std::min(history.workers, kMaxOfSmallCluster);
  history.replicate_every = 0;
  history.refused_every = 0;
  history.stop_on_refused = false;
  history.local = false;
  history.faults.clear();
  const uint64_t count = 1 + random.Below(4);
  for (uint64_t i = 0; i < count; ++i) {  // Each with a change of plan to be in the middle of.
    for (const FaultKind kind : {FaultKind::kJoin, FaultKind::kNotice}) {
      history.faults.push_back(DrawFault(kind, kWindowSeconds * random.Uniform(), random));
    }
  }
  return history;
}

SimOptions DrawUnlikeHistory(uint64_t seed) {
  Random random(StreamKey(seed, "unlike history"));
  SimOptions history = DrawHistory(seed);
  history.arithmetics = 2;
  history.unlike_begin = random.Below(3) == 0;
  history.demands_alike = random.Below(2) == 0;
  return history;
}

SimOptions DrawPricedHistory(uint64_t seed) {
  constexpr std::array kFirst = {FaultKind::kSlow, FaultKind::kJoin, FaultKind::kKill,
                                 FaultKind::kDrain};
  Random random(StreamKey(seed, "priced history"));
  SimOptions history;
  history.seed = seed;
  history.luck = false;
  history.workers = static_cast<int>(2 + random.Below(4));
  history.steps = 800;  // Long enough to come to rest after the last fault.
  history.step_ms = 200;
  history.predicted_percent = std::array{60, 100, 170}[random.Below(3)];
  history.misjudged_percent = std::array{0, 80, 200}[random.Below(3)];
  history.unlike_percent = std::array{0, 0, 50, 200}[random.Below(4)];
  history.noise_percent = std::array{0, 0, 20}[random.Below(3)];
  const uint64_t draw = random.Below(10'000);
  std::vector<FaultKind> kinds(random.Below(6));
  for (FaultKind& kind : kinds) {
    kind = &kind == kinds.data()  ? kFirst[random.Below(kFirst.size())]
           : random.Below(2) == 0 ? FaultKind::kSlow
                                  : FaultKind::kJoin;
  }
  double at = 10;
  double pause = 0;
  if (random.Below(3) == 0) {  // What was tried, and taken back, is proposed again.
    kinds = {FaultKind::kJoin, FaultKind::kSlow, FaultKind::kSlow};
    history.misjudged_percent = 200;
    history.unlike_percent = 0;
    pause = 40;
  }
  for (const FaultKind kind : kinds) {
    history.faults.push_back(DrawFault(kind, at, random));
    history.faults.back().draw = draw;  // The same worker becomes slow and quick again.
    at += pause + 40 * random.Uniform();
  }
  return history;
}

}  // namespace heddle::elastic
