/// \file
/// The actions that the coordinator's shell carries out, in order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "elastic/control/connection.h"
#include "elastic/control/durable.h"
#include "elastic/control/log_event.h"
#include "elastic/control/planning.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// Makes `state` durable before the next action is carried out and before the state machine handles
/// another event: its time stands still meanwhile, and the workers train on. If known_step or the
/// generation in force is later than the last time, all log entries are made durable first: workers
/// forget the records of steps that are known, and each generation has its decision in the log.
struct Persist {
  DurableState state;
};
struct Send {
  ConnectionId connection = 0;
  wire::ToWorker message;
};
/// Closes the connection once all earlier messages are sent.
struct Close {
  ConnectionId connection = 0;
};
/// Asks the planner for a plan, which answers with Planned. A newer request supersedes older ones.
struct FindPlan {
  PlanRequest request;
};
/// What a checkpoint records beside the state.
struct CheckpointFacts {
  std::optional<double> validation_loss = {};  ///< The loss after the step, if known already.
  uint64_t data = 0;                           ///< Fingerprint of the data, as in Job.
  Provenance provenance = {};                  ///< Where the bits of the state come from.
};
/// Commits a checkpoint whose parts are complete. Answered by CheckpointCommitted.
struct CommitCheckpoint {
  int64_t step = 0;
  int64_t generation = 0;
  std::vector<std::string> parts;  ///< CheckpointPart.part of each writer, by rank; opaque.
  std::string plan_json;
  CheckpointFacts facts;
};
/// Records the validation loss after a step whose checkpoint was, or is being, committed without
/// it.
struct NoteValidation {
  int64_t step = 0;
  double loss = 0;
};
/// A save that will not be completed: what was written of it may be removed.
struct AbandonCheckpoint {
  int64_t step = 0;
  int64_t generation = 0;
};
struct WriteLog {
  LogEvent event;
};
/// The worker list of job.json changed.
struct ListWorkers {
  struct Entry {
    std::string name;
    int64_t pid = 0;
    std::string metrics_address;
    std::string host;
  };
  std::vector<Entry> workers;
};
/// A worker was lost, not released. A launcher with `restart: true` starts it again; it first ends
/// a process that still runs (cut off or hung).
struct WorkerGone {
  std::string worker;
  int64_t pid = 0;
};
/// The job ended; every worker has been told.
struct EndJob {
  bool ok = false;
  /// Not ok: the input is at fault (no checkpoint is sound, no worker fits).
  bool bad_input = false;
  std::string reason;
  bool suspended = false;  ///< Not ok: the job continues when it is started again.
};

using CoordinatorAction = std::variant<Persist,
                                       Send,
                                       Close,
                                       FindPlan,
                                       CommitCheckpoint,
                                       NoteValidation,
                                       AbandonCheckpoint,
                                       WriteLog,
                                       ListWorkers,
                                       WorkerGone,
                                       EndJob>;

}  // namespace heddle::elastic
