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

/// The processes of the job's coordinators. Thread: one caller.
class CoordinatorHost {
 public:
  CoordinatorHost(Cluster& cluster, Job job);

  const Job& job() const { return job_; }
  /// The process that owns the store; null: none does.
  CoordinatorProcess* leader() const { return leader_; }
  bool runs() const { return leader_ != nullptr; }
  bool answers() const { return runs() && leader_->answers(); }
  wire::JobStatus Describe() const;
  /// The process that a worker reaches when it looks for a coordinator: mostly the leader,
  /// sometimes a former one that still believes it leads. Null: none answers.
  CoordinatorProcess* Find() const;

  /// Starts a coordinator from the stored state, if there is any; does nothing while one leads.
  void Start();
  void StartAfter(Duration time);
  /// Ends the leader's process. `power`: its machine loses power, so that what was written there
  /// but not made durable is lost.
  void Stop(bool power);
  /// Ends the process of a former leader.
  void End(CoordinatorProcess& former);

  // Faults.
  /// Another coordinator takes the leader's place; the former leader goes on, unaware of it.
  void TakeOver();
  /// The coordinator's machine is lost for ever, with its store. The next coordinator knows only
  /// what is on storage.
  void LoseStore();

 private:
  CoordinatorProcess& Add(Coordinator machine, const SimClock& clock);
  void BeginEra();

  Cluster& cluster_;
  const Job job_;
  std::vector<std::unique_ptr<CoordinatorProcess>> processes_;  ///< By life, ended ones included.
  CoordinatorProcess* leader_ = nullptr;
  bool store_lost_ = false;  ///< The store was lost, and no coordinator began since.
};

}  // namespace heddle::elastic
