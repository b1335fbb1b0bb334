/// \file
/// The coordinators of the job, one after another, or two at once: their ends and restarts, and
/// which of them owns the store.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/elastic/simulation/coordinator/coordinator_process.h"

namespace heddle::elastic {

class Cluster;

/// Thread: one caller.
class CoordinatorHost {
 public:
  CoordinatorHost(Cluster& cluster, Job job);

  const Job& job() const { return job_; }
  /// Who owns the store; null: nobody.
  CoordinatorProcess* leader() const { return leader_; }
  bool runs() const { return leader_ != nullptr; }
  bool answers() const { return runs() && leader_->answers(); }
  wire::JobStatus Describe() const;
  /// Whom a worker finds that looks for a coordinator: mostly the leader, but others believe that
  /// they are. Null: nobody answers.
  CoordinatorProcess* Find() const;

  /// From what is stored, if anything is. Nothing when one leads.
  void Start();
  void StartAfter(Duration time);
  /// The leader ends. `power`: its machine goes down, and what was written there but not made
  /// durable with it.
  void Stop(bool power);
  /// A former leader's process ends.
  void End(CoordinatorProcess& former);

  // Faults.
  /// Another coordinator takes the leader's place, which goes on as if it had not.
  void TakeOver();
  /// The coordinator's machine goes away for ever, with its store. What starts next knows what is
  /// on storage alone.
  void LoseStore();

 private:
  CoordinatorProcess& Add(Coordinator machine, const SimClock& clock);
  void BeginEra();

  Cluster& cluster_;
  const Job job_;
  std::vector<std::unique_ptr<CoordinatorProcess>> processes_;  ///< By life; ended ones, too.
  CoordinatorProcess* leader_ = nullptr;
  bool store_lost_ = false;  ///< And no coordinator has begun since.
};

}  // namespace heddle::elastic
