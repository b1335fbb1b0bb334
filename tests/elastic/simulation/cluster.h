/// \file
/// A whole job in one thread and virtual time: the shipped coordinator and member machines, a
/// network, a data plane, checkpoints and faults that a seed decides. State is a chain of hashes by
/// parameter, so that a step that was left out, applied twice, or applied with another norm shows
/// in every later state.
#pragma once

#include <string>

#include "tests/elastic/simulation/coordinator/coordinator_host.h"
#include "tests/elastic/simulation/coordinator/planner.h"
#include "tests/elastic/simulation/coordinator/sim_plan.h"
#include "tests/elastic/simulation/coordinator/sim_store.h"
#include "tests/elastic/simulation/coordinator/step_prices.h"
#include "tests/elastic/simulation/coordinator/storage.h"
#include "tests/elastic/simulation/faults/faults.h"
#include "tests/elastic/simulation/history/history.h"
#include "tests/elastic/simulation/history/undisturbed.h"
#include "tests/elastic/simulation/ledger/alterations.h"
#include "tests/elastic/simulation/ledger/decision_checks.h"
#include "tests/elastic/simulation/ledger/leave_checks.h"
#include "tests/elastic/simulation/ledger/ledger.h"
#include "tests/elastic/simulation/ledger/log_checks.h"
#include "tests/elastic/simulation/ledger/outcome_checks.h"
#include "tests/elastic/simulation/ledger/provenance_checks.h"
#include "tests/elastic/simulation/ledger/refused_copies.h"
#include "tests/elastic/simulation/workers/member_host.h"
#include "tests/elastic/simulation/workers/moves.h"
#include "tests/elastic/simulation/workers/snapshots.h"
#include "tests/elastic/simulation/workers/training.h"
#include "tests/elastic/simulation/world/fleet.h"
#include "tests/elastic/simulation/world/links.h"
#include "tests/elastic/simulation/world/streams.h"
#include "tests/elastic/simulation/world/world.h"

namespace heddle::elastic {

/// The parts of the simulated cluster. Each part keeps its own fields; the parts reach each other
/// through this class. Thread: one caller.
class Cluster {
 public:
  explicit Cluster(const SimOptions& options);
  /// Runs the whole history, and returns its outcome; called once.
  SimResult Run();

  World world;
  Undisturbed undisturbed;
  Fleet fleet;
  SimLinks links;
  Streams streams;
  SimStore store;
  CoordinatorHost coordinator;
  StepPrices prices;
  SimPlanner planner;
  SimStorage storage;
  Ledger ledger;
  RefusedCopies copies;
  Alterations alterations;
  LogChecks log;
  LeaveChecks leaves;
  DecisionChecks decisions;
  ProvenanceChecks provenance;
  OutcomeChecks outcomes;
  MemberHost members;
  Moves moves;
  Training training;
  Snapshots snapshots;
  FaultInjector faults;

 private:
  std::string Standings() const;
  Time Limit() const;
};

}  // namespace heddle::elastic
