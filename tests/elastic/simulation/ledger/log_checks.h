/// \file
/// What the coordinator writes down: steps, validations, saves, losses and the end of the job, each
/// checked against the truth that only the simulation knows.
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

/// Thread: one caller.
class LogChecks {
 public:
  explicit LogChecks(Cluster& cluster) : cluster_(cluster) {}

  void Take(const LogEvent& event);
  void TakeEnd(const EndJob& end);
  /// A coordinator that starts finds that the job has ended.
  void TakeStoredEnd(const DurableState& state);
  /// A save ends once: committed or given up.
  void NoteSaveEnd(int64_t life, int64_t step, int64_t generation, const char* how);
  /// A coordinator begins with an empty store after this step: what was logged until then counts as
  /// of this generation.
  void BeginEra(int64_t generation, int64_t step);
  /// What was logged outlives the coordinator's machine.
  void MakeDurable() { not_durable_.clear(); }
  void ForgetWhatIsNotDurable();
  /// A generation begins after a step: after that of the suspension, if there was one.
  void CheckResumption(int64_t step);
  /// What a coordinator goes on from says nothing that is not there.
  void CheckRestored(const DurableState& restored);
  /// The coordinator hears it.
  void NoteHeard(const wire::FromWorker& message);
  bool stepped_since_healed() const { return stepped_since_healed_; }

 private:
  void TakeStep(const LogEvent& event);
  void TakeValidation(const LogEvent& event);
  void TakeLoss(const LogEvent& event);
  void TakeRefusal(const LogEvent& event);
  /// Whom the coordinator knows, and how many it gives up that work.
  void TakeMembership(const LogEvent& event);
  /// Another coordinator counts anew.
  void ForgetMembership();
  void CheckFewMistaken(const SimWorker& lost, const std::string& reason);
  void TakeSuspended(const LogEvent& event);
  void CheckLoss(const LogEvent& event, const char* what);
  void TakeFinish();
  int64_t GenerationOf(int64_t step) const;
  /// Whether all the world can see that the worker trains.
  bool ShowsLife(const SimWorker& worker);

  Cluster& cluster_;
  /// The generation that ran each step, as its newest record says; 0: there is none.
  std::vector<int64_t> steps_ = {0};
  /// What was logged since the last time that it was made durable: steps, and their generations
  /// before.
  std::vector<std::pair<int64_t, int64_t>> not_durable_;
  std::map<std::string, std::string>
      known_;                         ///< Incarnations of those that have come and not gone.
  std::map<std::string, Time> gone_;  ///< Who was lost lately.
  struct Mistaken {
    Time at;
    std::string name;
    size_t workers = 0;  ///< So many were known then.
  };
  std::vector<Mistaken> mistaken_;  ///< Given up for their silence, though they work.
  std::optional<Time> held_at_;
  std::set<std::string>
      outlasted_;  ///< Who may be given up, once, for a hold was as long as can be.
  std::map<std::string, Time> accused_places_;  ///< Hosts, or failure domains.
  std::optional<int64_t> suspended_after_;      ///< Where the next generation begins.
  bool stepped_since_healed_ = false;
  /// How each save ended, by the coordinator's life, step and generation.
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::string> save_ends_;
};

}  // namespace heddle::elastic
