// Who is given up for its silence alone: few at a time.
#include <algorithm>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"
#include "tests/elastic/simulation/ledger/log_checks.h"

namespace heddle::elastic {
namespace {

// Some seconds, which is less than the product's: faults of the coordinator's clock make those
// longer or shorter.
constexpr Duration kWindow = std::chrono::seconds(4);

bool HasAnotherClock(const SimOptions& options) {
  return std::ranges::any_of(options.faults, [](const Fault& fault) {
    return fault.kind == FaultKind::kJumpCoordinatorClock ||
           fault.kind == FaultKind::kStopCoordinator;
  });
}

// Of "host-3": its failure domain where there are some, else the host itself.
std::string PlaceOf(const std::string& host, int domains) {
  return domains == 1 ? host : std::to_string(std::stoi(host.substr(host.find('-') + 1)) % domains);
}

}  // namespace

void LogChecks::NoteHeard(const wire::FromWorker& message) {
  const SimWorker* accused =
      message.has_peer_lost() ? cluster_.fleet.Named(message.peer_lost().peer()) : nullptr;
  if (accused != nullptr) {
    accused_places_[PlaceOf(accused->host, cluster_.world.options().domains)] =
        cluster_.world.now();
  }
}

void LogChecks::ForgetMembership() {
  known_.clear();
  gone_.clear();
  mistaken_.clear();
  outlasted_.clear();
  held_at_.reset();
}

void LogChecks::TakeMembership(const LogEvent& event) {
  const LogEvent::Value* named = event.Find("worker");
  if (event.kind == "worker_joined") {
    const std::string& name = std::get<std::string>(*named);
    const SimWorker* joined = cluster_.fleet.Named(name);
    known_[name] = joined == nullptr ? "" : joined->incarnation;
  } else if (event.kind == "worker_left") {
    known_.erase(std::get<std::string>(*named));
  } else if (event.kind == "worker_lost") {
    const std::string& name = std::get<std::string>(*named);
    const SimWorker* lost = cluster_.fleet.Named(name);
    if (lost != nullptr &&
        lost->incarnation == known_[name]) {  // Else it ended, and this one waits.
      CheckFewMistaken(*lost, std::get<std::string>(*event.Find("reason")));
    }
    known_.erase(name);
    gone_[name] = cluster_.world.now();
  } else if (event.kind == "losses_held") {
    held_at_ = cluster_.world.now();
    outlasted_.clear();
  } else if (event.kind == "losses_released") {
    const Duration held = cluster_.world.now() - held_at_.value_or(Time());
    const Duration wanted = cluster_.coordinator.job().policy.mass_silence;
    const bool is_over = std::get<std::string>(*event.Find("reason")) == "it lasts";
    if (is_over && held < wanted * 9 / 10 && !HasAnotherClock(cluster_.world.options())) {
      cluster_.world.Fail(fmt::format("losses were held for {:.1f} s only", Seconds(held)));
    }
    if (is_over) {  // Whoever was not heard for so long may be given up.
      for (const auto& [name, incarnation] : known_) {
        outlasted_.insert(name);
      }
      mistaken_.clear();
    }
  }
}

void LogChecks::CheckFewMistaken(const SimWorker& lost, const std::string& reason) {
  World& world = cluster_.world;
  const Time now = world.now();
  const auto is_over = [&](Time at) { return now - at >= kWindow; };
  const std::string name = lost.member->name();
  std::erase_if(mistaken_, [&](const Mistaken& before) {
    return is_over(before.at) || before.name == name;  // One that comes and goes counts once.
  });
  const bool of_silence =
      reason.starts_with("no heartbeat") || reason.find("in time") != std::string::npos;
  const bool works = !lost.trainer.stuck && !lost.stopped_until && lost.control.connection != 0 &&
                     !cluster_.streams.LeadsElsewhere(lost) && !cluster_.fleet.Unreachable(lost);
  const auto other = accused_places_.find(PlaceOf(lost.host, world.options().domains));
  const bool accused = other != accused_places_.end() &&
                       now - other->second <= 2 * cluster_.coordinator.job().policy.mass_silence;
  const bool outlasted = outlasted_.erase(name) > 0;
  if (!of_silence || !works || accused || outlasted) {
    return;
  }
  world.Count("given up though it works");
  // Of those that are lost together, each counts until the last one is.
  std::erase_if(gone_, [&](const auto& gone) { return is_over(gone.second); });
  const auto others =
      std::ranges::count_if(gone_, [&](const auto& gone) { return known_.count(gone.first) == 0; });
  mistaken_.push_back({now, name, known_.size() + static_cast<size_t>(others)});
  const size_t most = std::ranges::max(mistaken_, {}, &Mistaken::workers).workers;
  if (mistaken_.size() > 1 && 2 * mistaken_.size() > most && !HasAnotherClock(world.options())) {
    world.Fail(fmt::format("{} of {} workers are given up within {:.0f} s though they work",
                           mistaken_.size(), most, Seconds(kWindow)));
  }
}

}  // namespace heddle::elastic
