#include "tests/elastic/simulation/history/shrink.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace heddle::elastic {
namespace {

class Shrinker {
 public:
  Shrinker(SimOptions failing, const std::function<bool(const SimOptions&)>& fails, int runs)
      : smallest_(std::move(failing)),
        fails_(fails),
        runs_(runs) {}

  SimOptions Run() {
    SimOptions before;
    do {
      before = smallest_;
      DropFaults();
      MakePlain();
      MakeSmall();
      MakeFaultsSmall();
    } while (runs_ > 0 && !(before == smallest_));
    return smallest_;
  }

 private:
  /// Keeps the candidate if it fails, too.
  template <typename Change>
  bool Try(Change change) {
    SimOptions candidate = smallest_;
    change(candidate);
    if (candidate == smallest_ || runs_ <= 0) {
      return false;
    }
    --runs_;
    const bool fails = fails_(candidate);
    if (fails) {
      smallest_ = candidate;
    }
    return fails;
  }

  void DropFaults() {
    for (size_t size = smallest_.faults.size(); size > 0; size /= 2) {
      for (size_t at = 0; at < smallest_.faults.size();) {
        const bool dropped = Try([&](SimOptions& history) {
          const auto first = history.faults.begin() + static_cast<std::ptrdiff_t>(at);
          const size_t count = std::min(size, history.faults.size() - at);
          history.faults.erase(first, first + static_cast<std::ptrdiff_t>(count));
        });
        at += dropped ? 0 : size;
      }
    }
  }

  void MakePlain() {
    const SimOptions plain;
    Try([](SimOptions& history) { history.luck = false; });
    Try([&](SimOptions& history) { history.replicate_every = plain.replicate_every; });
    Try([&](SimOptions& history) { history.replica_copies = plain.replica_copies; });
    Try([&](SimOptions& history) { history.tells_moves = plain.tells_moves; });
    Try([&](SimOptions& history) { history.refused_every = plain.refused_every; });
    Try([&](SimOptions& history) { history.stop_on_refused = plain.stop_on_refused; });
    Try([&](SimOptions& history) { history.local = plain.local; });
    Try([&](SimOptions& history) { history.planner_ms = plain.planner_ms; });
    Try([&](SimOptions& history) { history.checkpoint_every = plain.checkpoint_every; });
    Try([&](SimOptions& history) { history.domains = plain.domains; });
    Try([&](SimOptions& history) { history.hosts = plain.hosts; });
    Try([&](SimOptions& history) { history.product_patience = plain.product_patience; });
    Try([&](SimOptions& history) { history.patient_calls = plain.patient_calls; });
    Try([&](SimOptions& history) { history.misjudged_percent = plain.misjudged_percent; });
    Try([&](SimOptions& history) { history.unlike_percent = plain.unlike_percent; });
    Try([&](SimOptions& history) { history.noise_percent = plain.noise_percent; });
    Try([&](SimOptions& history) { history.shared_percent = plain.shared_percent; });
    Try([&](SimOptions& history) { history.observes = plain.observes; });
  }

  void MakeSmall() {
    while (smallest_.workers > 1 && Try([](SimOptions& history) { history.workers /= 2; })) {
    }
    while (smallest_.workers > 1 && Try([](SimOptions& history) { --history.workers; })) {
    }
    while (smallest_.steps > 1 && Try([](SimOptions& history) { history.steps /= 2; })) {
    }
  }

  void MakeFaultsSmall() {
    for (size_t i = 0; i < smallest_.faults.size(); ++i) {
      const auto halve = [&](double Fault::*field) {
        return Try([&](SimOptions& history) {
          double& value = history.faults[i].*field;
          value = value < 0.01 ? 0 : std::round(500 * value) / 1000;
        });
      };
      while (halve(&Fault::seconds)) {
      }
      while (halve(&Fault::at)) {
      }
      Try([&](SimOptions& history) { history.faults[i].draw = 0; });
    }
  }

  SimOptions smallest_;
  const std::function<bool(const SimOptions&)>& fails_;
  int runs_;
};

}  // namespace

SimOptions Shrink(SimOptions failing,
                  const std::function<bool(const SimOptions&)>& fails,
                  int most_runs) {
  return Shrinker(std::move(failing), fails, most_runs).Run();
}

std::string Story(const SimResult& result) {
  std::string text;
  for (const SimMoment& moment : result.moments) {
    text += fmt::format("{:9.3f}  {}\n", moment.seconds, moment.what);
  }
  return text;
}

}  // namespace heddle::elastic
