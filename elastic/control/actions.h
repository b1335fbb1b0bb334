/// \file
/// What the coordinator has its shell do. Actions are carried out in order.
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

/// Durable before the next action is carried out, and before the machine hears of another event:
/// meanwhile its time stands still, and the workers train on. Where known_step, or the generation
/// in force, is a later one than the last time, all that was logged is durable first: workers
/// forget the records of steps that are known, and each generation has its decision in the log.
struct Persist {
  DurableState state;
};
struct Send {
  ConnectionId connection = 0;
  wire::ToWorker message;
};
/// Close the stream after what was sent before.
struct Close {
  ConnectionId connection = 0;
};
/// Answered by Planned. A newer request makes older ones moot.
struct FindPlan {
  PlanRequest request;
};
/// What is said of a checkpoint beside its state.
struct CheckpointFacts {
  std::optional<double> validation_loss = {};  ///< After the step, when it is known already.
  uint64_t data = 0;                           ///< As in Job.
};
/// Answered by CheckpointCommitted.
struct CommitCheckpoint {
  int64_t step = 0;
  int64_t generation = 0;
  std::vector<std::string> parts;  ///< By writer's rank; opaque.
  std::string plan_json;
  CheckpointFacts facts;
};
/// The loss after a step whose checkpoint was, or is being, committed without it.
struct NoteValidation {
  int64_t step = 0;
  double loss = 0;
};
/// The save will not be completed: what was written of it may be removed.
struct AbandonCheckpoint {
  int64_t step = 0;
  int64_t generation = 0;
};
struct WriteLog {
  LogEvent event;
};
/// The list of job.json changed.
struct ListWorkers {
  struct Entry {
    std::string name;
    int64_t pid = 0;
    std::string metrics_address;
    std::string host;
  };
  std::vector<Entry> workers;
};
/// A worker was lost, not released: a launcher with `restart: true` starts it again, and ends its
/// process before that where it still runs (cut off, hung).
struct WorkerGone {
  std::string worker;
  int64_t pid = 0;
};
/// The job ended; every worker has been told.
struct EndJob {
  bool ok = false;
  bool bad_input =
      false;  ///< Not ok: the input is at fault (no checkpoint is sound, no worker fits).
  std::string reason;
  bool suspended = false;  ///< Not ok: it goes on when it is started again.
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
