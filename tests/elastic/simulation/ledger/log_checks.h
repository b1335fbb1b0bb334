/// \file
/// Checks of the coordinator's log: steps, validations, saves, losses and the job's end, each
/// against the truth that only the simulation knows.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "elastic/control/actions.h"
#include "tests/elastic/simulation/world/worker.h"

namespace heddle::elastic {

class Cluster;

/// Checks of the coordinator's log. Thread: one caller.
class LogChecks {
 public:
  explicit LogChecks(Cluster& cluster) : cluster_(cluster) {}

  /// Checks an event that the coordinator logs.
  void Take(const LogEvent& event);
  /// Checks the job's end, as the coordinator decides it.
  void TakeEnd(const EndJob& end);
  /// Checks the job's end, as a coordinator that starts finds it in its store.
  void TakeStoredEnd(const DurableState& state);
  /// A save was committed or given up (`how`); checks that each save ends once.
  void NoteSaveEnd(int64_t life, int64_t step, int64_t generation, const char* how);
  /// A coordinator begins with an empty store after `step`: the steps logged until then count as
  /// those of `generation`.
  void BeginEra(int64_t generation, int64_t step);
  /// All logged events outlive the coordinator's machine from now on.
  void MakeDurable() { not_durable_.clear(); }
  void ForgetWhatIsNotDurable();
  /// A generation begins after `step`; checks that it is the suspension's step, if there was one.
  void CheckResumption(int64_t step);
  /// Checks that the state from which a coordinator goes on names nothing that does not exist.
  void CheckRestored(const DurableState& restored);
  /// The coordinator hears a worker's message.
  void NoteHeard(const wire::FromWorker& message);
  bool stepped_since_healed() const { return stepped_since_healed_; }

 private:
  void TakeStep(const LogEvent& event);
  void TakeValidation(const LogEvent& event);
  void TakeLoss(const LogEvent& event);
  void TakeRefusal(const LogEvent& event);
  /// Notes the workers that the coordinator knows, and counts those it gives up though they work.
  void TakeMembership(const LogEvent& event);
  /// Forgets the workers that the last coordinator knew.
  void ForgetMembership();
  void CheckFewMistaken(const SimWorker& lost, const std::string& reason);
  void TakeSuspended(const LogEvent& event);
  void CheckLoss(const LogEvent& event, const char* what);
  void TakeFinish();
  int64_t GenerationOf(int64_t step) const;
  /// Whether the worker's messages show all other processes that it trains.
  bool ShowsLife(const SimWorker& worker);

  Cluster& cluster_;
  /// The generation that ran each step, as its newest record says; 0: there is none.
  std::vector<int64_t> steps_ = {0};
  /// The steps logged since the log was last made durable, each with its generation before.
  std::vector<std::pair<int64_t, int64_t>> not_durable_;
  std::map<std::string, std::string> known_;  ///< Incarnations of workers that are in the job.
  std::map<std::string, Time> gone_;          ///< When workers were lost, for recent losses.
  struct Mistaken {
    Time at;
    std::string name;
    size_t workers = 0;  ///< The number of workers known at that time.
  };
  std::vector<Mistaken> mistaken_;  ///< Workers given up for silence that work.
  std::optional<Time> held_at_;
  std::set<std::string>
      outlasted_;  ///< Names of workers that may be given up once, after the longest hold.
  std::map<std::string, Time> accused_places_;  ///< Hosts, or failure domains.
  std::optional<int64_t> suspended_after_;      ///< Where the next generation begins.
  bool stepped_since_healed_ = false;
  /// How each save ended, by the coordinator's life, step and generation.
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::string> save_ends_;
};

}  // namespace heddle::elastic
