#include "tests/elastic/simulation/ledger/log_checks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {
namespace {

// Without plans and the like.
std::string SayShortly(const LogEvent& event) {
  std::string text = event.kind;
  for (const auto& [name, value] : event.fields) {
    if (const auto* number = std::get_if<int64_t>(&value)) {
      text += fmt::format(", {} {}", name, *number);
    } else if (const auto* word = std::get_if<std::string>(&value)) {
      text += fmt::format(", {} {}", name, *word);
    }
  }
  return text;
}

}  // namespace

void LogChecks::BeginEra(int64_t generation, int64_t step) {
  for (int64_t logged = 1; logged < static_cast<int64_t>(steps_.size()); ++logged) {
    int64_t& ran = steps_[static_cast<size_t>(logged)];
    ran = logged > step || ran == 0 ? 0 : generation;
  }
  not_durable_.clear();
  ForgetMembership();
  suspended_after_.reset();
}

void LogChecks::NoteSaveEnd(int64_t life, int64_t step, int64_t generation, const char* how) {
  cluster_.world.Count(std::string("save ") + how);
  const auto [found, is_new] = save_ends_.emplace(std::tuple(life, step, generation), how);
  if (!is_new) {
    cluster_.world.Fail(fmt::format("the save of step {}, generation {}, is {} after it was {}",
                                    step, generation, how, found->second));
  }
}

int64_t LogChecks::GenerationOf(int64_t step) const {
  return static_cast<int64_t>(steps_.size()) > step ? steps_[static_cast<size_t>(step)] : 0;
}

void LogChecks::ForgetWhatIsNotDurable() {
  for (auto logged = not_durable_.rbegin(); logged != not_durable_.rend(); ++logged) {
    steps_[static_cast<size_t>(logged->first)] = logged->second;
  }
  not_durable_.clear();
  while (steps_.size() > 1 && steps_.back() == 0) {
    steps_.pop_back();
  }
}

void LogChecks::CheckRestored(const DurableState& restored) {
  ForgetMembership();
  for (const auto& [name, worker] : restored.workers) {
    known_[name] = worker.incarnation;
  }
  for (int64_t step = 1; step <= restored.known_step; ++step) {
    if (GenerationOf(step) == 0) {
      cluster_.world.Fail(
          fmt::format("the coordinator goes on after step {}, and the record of step {} is lost",
                      restored.known_step, step));
      return;
    }
  }
}

void LogChecks::TakeEnd(const EndJob& end) {
  World& world = cluster_.world;
  world.Trace("end: " + end.reason);
  world.End();
  const SimOptions& options = world.options();
  // Where workers come and die faster than a generation forms, the job may give up.
  if (end.reason.find("recoveries in a row without a completed step") != std::string::npos &&
      std::ranges::any_of(options.faults, [](const Fault& fault) {
        return fault.kind == FaultKind::kJoinAndDie;
      })) {
    return world.Count("given up in a storm of joins");
  }
  if (options.local && (end.suspended || end.reason == kCancelled)) {
    return world.Count(end.suspended ? "ended suspended" : "cancelled");
  }
  if (!options.stop_on_refused || options.refused_every == 0 ||
      options.steps < options.refused_every) {
    return end.ok ? void() : world.Fail("the job failed: " + end.reason);
  }
  const int64_t first = options.refused_every;
  if (end.ok || end.reason.find(fmt::format("step {} is not finite", first)) == std::string::npos) {
    world.Fail(fmt::format("step {} is not finite, and the job ended: {}", first, end.reason));
  }
  if (GenerationOf(first) == 0 || static_cast<int64_t>(steps_.size()) > first + 1) {
    world.Fail(fmt::format("the job failed at step {}, and the last one logged is another", first));
  }
  world.Count("stopped by a step");
}

void LogChecks::TakeStoredEnd(const DurableState& state) {
  cluster_.world.Count("the end was stored, and nobody told");
  if (state.finished) {
    TakeFinish();
  }
  TakeEnd({.ok = state.finished, .reason = state.failed});
}

void LogChecks::Take(const LogEvent& event) {
  World& world = cluster_.world;
  if (world.traces()) {
    world.Trace("log " + FormatLogEvent(event, 0));
  }
  if (world.options().record && event.kind != "step" && event.kind != "links_measured") {
    world.Note(SayShortly(event));
  }
  world.Count(event.kind);
  TakeMembership(event);
  cluster_.outcomes.Take(event);
  if (event.kind == "step") {
    TakeStep(event);
  } else if (event.kind == "validation") {
    TakeValidation(event);
  } else if (event.kind == "links_measured") {
    world.Count("links " + std::get<std::string>(*event.Find("result")));
  } else if (event.kind == "resumed" && std::get<int64_t>(*event.Find("steps_repeated")) > 0) {
    world.Count("steps repeated");
  } else if (event.kind == "worker_lost") {
    TakeLoss(event);
  } else if (event.kind == "recovery_source") {
    const std::string& chosen = std::get<std::string>(*event.Find("chosen"));
    world.Count("from " + chosen);
    cluster_.decisions.NoteSource(chosen);
  } else if (event.kind == "decision") {
    cluster_.decisions.Take(event);
  } else if (event.kind == "drain_refused" || event.kind == "worker_left") {
    cluster_.leaves.Take(event);
  } else if (event.kind == "suspended") {
    TakeSuspended(event);
  } else if (event.kind == "replica_refused") {
    cluster_.ledger.Refuse(
        {std::get<int64_t>(*event.Find("step")), std::get<int64_t>(*event.Find("generation"))});
  } else if (event.kind == "state_refused") {
    TakeRefusal(event);
  } else if (event.kind == "state_disagrees") {
    cluster_.alterations.TakeDisagreement(event);
    cluster_.ledger.RefuseAfter(std::get<int64_t>(*event.Find("agreed_step")));
  } else if (event.kind == "job_finished") {
    CheckLoss(event, "the job's last step");
    TakeFinish();
  }
}

// Where it names one.
void LogChecks::CheckLoss(const LogEvent& event, const char* what) {
  const Undisturbed& undisturbed = cluster_.undisturbed;
  const int64_t step = std::get<int64_t>(*event.Find("step"));
  if (const LogEvent::Value* const value = event.Find("loss")) {
    const double loss = std::get<double>(*value);
    if (undisturbed.Refused(step) ? !std::isnan(loss) : loss != undisturbed.Loss(step)) {
      cluster_.world.Fail(fmt::format("{}, {}, was logged with another loss", what, step));
    }
  }
}

void LogChecks::TakeStep(const LogEvent& event) {
  CheckLoss(event, "a step");
  const int64_t step = std::get<int64_t>(*event.Find("step"));
  if (std::get<int64_t>(*event.Find("first_sample")) != (step - 1) * 8) {
    cluster_.world.Fail(fmt::format("step {} was logged with other samples", step));
  }
  const int64_t generation = std::get<int64_t>(*event.Find("generation"));
  if (!cluster_.ledger.Counts(generation, step)) {
    cluster_.world.Fail(fmt::format(
        "step {} was logged as generation {} ran it, which does not count", step, generation));
  }
  if (cluster_.world.options().notices_only && GenerationOf(step) > 0) {
    cluster_.world.Fail(fmt::format("step {} is run again", step));
  }
  if (const auto healed = cluster_.world.healed_at(); healed && !stepped_since_healed_) {
    stepped_since_healed_ = true;
    cluster_.world.result().longest_wait = Seconds(cluster_.world.now() - *healed);
  }
  if (static_cast<int64_t>(steps_.size()) <= step) {
    steps_.resize(static_cast<size_t>(step) + 1);
  }
  not_durable_.emplace_back(step, std::exchange(steps_[static_cast<size_t>(step)], generation));
}

void LogChecks::TakeValidation(const LogEvent& event) {
  const int64_t step = std::get<int64_t>(*event.Find("step"));
  const double loss = std::get<double>(*event.Find("loss"));
  const auto generation = std::lround((loss - static_cast<double>(step)) * 1024);
  if (!cluster_.ledger.Counts(generation, step)) {
    cluster_.world.Fail(
        fmt::format("step {} was logged as generation {} validated it, which does not count", step,
                    generation));
  }
}

// Who trains is not given up for its silence. Nobody is late that does something, or waits for
// others that do.
void LogChecks::TakeLoss(const LogEvent& event) {
  World& world = cluster_.world;
  const std::string reason = std::get<std::string>(*event.Find("reason"));
  const SimWorker* lost = cluster_.fleet.Named(std::get<std::string>(*event.Find("worker")));
  if (reason.starts_with("what comes to it")) {
    cluster_.copies.Forgive(std::get<std::string>(*event.Find("worker")));
  }
  const bool silent = reason.starts_with("no heartbeat") || reason == "its connection broke";
  if (silent && lost != nullptr && ShowsLife(*lost)) {
    world.Fail(fmt::format("{} is given up although it trains: {}", lost->key, reason));
  }
  if (reason.starts_with("again ")) {
    world.Count("one of a circle");
    return;
  }
  const bool by_waits = reason.find("which did nothing") != std::string::npos;
  if (!by_waits && reason.find("in time") == std::string::npos) {
    return;
  }
  world.Count(by_waits ? "named by waits" : "stood still");
  if (reason.find("waits for") != reason.rfind("waits for")) {
    world.Count("named by a chain of waits");
  }
  if (lost != nullptr && !lost->trainer.stuck && !lost->stopped_until &&
      !cluster_.fleet.Unreachable(*lost) && !cluster_.streams.LeadsElsewhere(*lost) &&
      world.now() >= lost->control.blocked_until()) {
    world.Fail(fmt::format("{} is given up although it is not stuck: {}", lost->key, reason));
  }
}

// It applied a step of the newest generation just now, nobody has complained or was told to stop,
// and another member can say so.
bool LogChecks::ShowsLife(const SimWorker& worker) {
  const Time now = cluster_.world.now();
  const Duration lease = cluster_.coordinator.job().policy.lease;
  const auto trains = [&](const SimWorker& w) {
    return w.trainer.run && w.trainer.run->generation == cluster_.ledger.newest_go() &&
           now - w.trainer.last_applied < std::chrono::seconds(1);
  };
  const auto running = cluster_.fleet.Running();
  return cluster_.ledger.IsWhole() && trains(worker) &&
         std::any_of(running.begin(), running.end(), [&](const SimWorker* other) {
           const SimControl& control = other->control;
           return other != &worker && trains(*other) && control.connection != 0 &&
                  !cluster_.streams.LeadsElsewhere(*other) && now - control.connected_at > lease &&
                  now - control.blocked_until() > lease && !other->stopped_until &&
                  !cluster_.fleet.Unreachable(*other);
         });
}

void LogChecks::TakeRefusal(const LogEvent& event) {
  const bool tensors = std::get<std::string>(*event.Find("source")) == "live";
  cluster_.copies.Refuse({.generation = std::get<int64_t>(*event.Find("generation")),
                          .step = tensors ? -1 : std::get<int64_t>(*event.Find("step")),
                          .holder = std::get<std::string>(*event.Find("from"))},
                         std::get<std::string>(*event.Find("worker")));
}

// Nobody has gone further than where the job goes on, and that is on storage.
void LogChecks::TakeSuspended(const LogEvent& event) {
  World& world = cluster_.world;
  const int64_t step = std::get<int64_t>(*event.Find("step"));
  const int64_t repeated = std::get<int64_t>(*event.Find("steps_repeated"));
  const bool saved = std::get<std::string>(*event.Find("reason")).empty();
  world.Count(saved ? "suspended and saved" : "suspended without its save");
  suspended_after_ = step;
  cluster_.ledger.NoteSuspended(step);
  if (step > 0 && !cluster_.storage.GenerationOf(step)) {
    world.Fail(
        fmt::format("the job is suspended after step {}, of which there is no checkpoint", step));
  }
  if (saved && repeated != 0) {
    world.Fail(fmt::format("{} steps before the suspension are to be run again", repeated));
  }
  if (!world.options().notices_only) {
    return;
  }
  if (!saved) {
    world.Fail("the job is suspended and its state was not saved");
  }
  for (const auto& [key, worker] : cluster_.fleet.workers()) {
    const SimTrainer& trainer = worker->trainer;
    if (!worker->exited && !trainer.held.empty() &&
        trainer.held_generation == cluster_.ledger.newest_go() &&
        trainer.held.begin()->second.step != step) {
      world.Fail(fmt::format("the job is suspended after step {}, and {} holds that after {}", step,
                             key, trainer.held.begin()->second.step));
    }
  }
}

void LogChecks::CheckResumption(int64_t step) {
  if (cluster_.world.options().notices_only && suspended_after_ && *suspended_after_ != step) {
    cluster_.world.Fail(fmt::format("the job was suspended after step {} and goes on after {}",
                                    *suspended_after_, step));
  }
  suspended_after_.reset();
}

void LogChecks::TakeFinish() {
  World& world = cluster_.world;
  cluster_.leaves.CheckDrained();
  for (int64_t step = 1; step <= world.options().steps; ++step) {
    if (GenerationOf(step) == 0) {
      world.Fail(fmt::format("step {} was never logged", step));
    } else if (!cluster_.ledger.Counts(GenerationOf(step), step)) {
      world.Fail(fmt::format("step {} was never logged as it was run again", step));
    }
  }
  if (!cluster_.storage.GenerationOf(world.options().steps)) {
    world.Fail("finished without the last checkpoint");
  }
}

}  // namespace heddle::elastic
