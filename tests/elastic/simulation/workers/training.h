/// \file
/// Steps: computing, the vote, applying, saving; with the outcomes that a real data plane can have
/// when a peer dies in the middle of them.
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

/// Thread: one caller.
class Training {
 public:
  explicit Training(Cluster& cluster) : cluster_(cluster) {}

  void Begin(SimWorker& worker, const RunSteps& run);
  /// The worker's run ends by an error of the data plane, blamed on `peer` if that is known.
  void Fail(SimWorker& worker, const Status& status, const std::string& peer);
  /// The update of a step whose gradients the worker has; `skip`: it is left out.
  void ApplyStep(SimWorker& worker, int64_t step, double norm, bool skip);
  void SaveAtRest(SimWorker& worker, const SaveState& save);
  /// A process ended: its connections break, and its peers notice.
  void PeerVanished(const std::string& key);

 private:
  struct Ballot {
    std::set<std::string> voted;
    bool stop = false;
    bool decided = false;
  };

  /// Who runs the generation with it, and holds its snapshots.
  void Join(SimWorker& worker, SimRun& run);
  /// To the next step, or the end.
  void Advance(SimWorker& worker);
  void Vote(SimWorker& worker);
  /// Whether it does nothing from now on.
  bool Hangs(SimWorker& worker);
  void AwaitVote(SimWorker& worker);
  void Decide(int64_t group, int64_t step);
  /// Whether the exchange of votes may reach some and not others.
  bool IsCrippled(const Ballot& ballot);
  void Learn(const std::string& key, int64_t group, int64_t step, double slowest_ms);
  void Apply(SimWorker& worker);
  /// As the vote that all have heard decided.
  void ApplyVoted(SimWorker& worker, int64_t step);
  void End(SimWorker& worker, RunEnded::How how, const Status& status, const std::string& peer);
  void LoseOne(SimWorker& worker, const std::string& name, bool neighbour);
  void Save(SimWorker& worker, int64_t generation, int64_t step);
  void Validate(SimWorker& worker);

  Cluster& cluster_;
  std::map<std::pair<int64_t, int64_t>, Ballot> ballots_;  ///< By group and step.
  Time last_applied_;                                      ///< When somebody applied a step.
};

}  // namespace heddle::elastic
