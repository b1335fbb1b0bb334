/// \file
/// The simulated steps: computing, the vote, applying and saving, with the outcomes that a real
/// data plane can have when a peer dies in the middle of them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "tests/elastic/simulation/world/worker.h"

namespace heddle::elastic {

class Cluster;

/// The runs of all workers. Thread: one caller.
class Training {
 public:
  explicit Training(Cluster& cluster) : cluster_(cluster) {}

  void Begin(SimWorker& worker, const RunSteps& run);
  /// Ends the worker's run with an error of the data plane. `peer`: the name of the worker that
  /// caused it; empty: unknown.
  void Fail(SimWorker& worker, const Status& status, const std::string& peer);
  /// Applies the update of a step whose gradients the worker has; `skip`: leaves the update out.
  void ApplyStep(SimWorker& worker, int64_t step, double norm, bool skip);
  void SaveAtRest(SimWorker& worker, const SaveState& save);
  /// A worker's process ended: its connections break, and its peers notice.
  void PeerVanished(const std::string& key);

 private:
  struct Ballot {
    std::set<std::string> voted;
    bool stop = false;
    bool decided = false;
  };

  /// Sets the run's members and the holders of the worker's snapshots.
  void Join(SimWorker& worker, SimRun& run);
  /// Goes on to the next step, or to the end of the run.
  void Advance(SimWorker& worker);
  void Vote(SimWorker& worker);
  /// By chance hangs the worker. Returns whether it did.
  bool Hangs(SimWorker& worker);
  void AwaitVote(SimWorker& worker);
  void Decide(int64_t group, int64_t step);
  /// Whether the exchange of votes may reach some members and not others.
  bool IsCrippled(const Ballot& ballot);
  void Learn(const std::string& key, int64_t group, int64_t step, double slowest_ms);
  void Apply(SimWorker& worker);
  /// Applies or skips a step's update, as the vote that all members heard decided.
  void ApplyVoted(SimWorker& worker, int64_t step);
  void End(SimWorker& worker, RunEnded::How how, const Status& status, const std::string& peer);
  void LoseOne(SimWorker& worker, const std::string& name, bool neighbour);
  void Save(SimWorker& worker, int64_t generation, int64_t step);
  void Validate(SimWorker& worker);

  Cluster& cluster_;
  std::map<std::pair<int64_t, int64_t>, Ballot> ballots_;  ///< By group and step.
  Time last_applied_;                                      ///< When a worker last applied a step.
};

}  // namespace heddle::elastic
