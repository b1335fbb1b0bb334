/// \file
/// The coordinator as a pure state machine: (state, event, now) → (state, actions). No clock,
/// socket, file, thread or randomness inside; the same inputs give the same actions, so that any
/// history replays. elastic/grpc/server.h is its shell. How a change of membership goes, in order:
///
///     loss    fence (generation + 1, durable) → Halt → Halted → settle the step → plan → Prepare →
///     Prepared
///             → Start → Ready → Go
///     planned plan → Prepare → Prepared, all while training goes on → Stop → Stopped → Start →
///     Ready → Go
///
/// A loss during either starts again from the fence with those that are left. Before workers that
/// have come are planned with, their links are measured (elastic/control/coordinator_links.cc).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/control/durable.h"
#include "elastic/control/log_event.h"
#include "elastic/control/planning.h"
#include "elastic/control/policy.h"
#include "elastic/protocol/protocol.pb.h"
#include "elastic/protocol/version.h"

namespace heddle::elastic {

/// A worker's stream, numbered by the shell; never reused.
using ConnectionId = int64_t;

// ---- Events ----

struct Submitted {
  Job job;
};
struct Received {
  ConnectionId connection = 0;
  wire::FromWorker message;
};
struct Disconnected {
  ConnectionId connection = 0;
};
/// The launcher saw the process end: certain at once, no grace.
struct ProcessExited {
  std::string worker;
  int64_t pid = 0;
  std::string reason;  ///< "killed by SIGKILL", "exit code 1".
};
struct Planned {
  PlanOutcome outcome;
};
struct CheckpointCommitted {
  int64_t step = 0;
  int64_t generation = 0;
  Status status;
  int64_t bytes = 0;
  int64_t raw_bytes = 0;
  double seconds = 0;
};
struct DrainRequested {
  std::string worker;  ///< Name or host.
};
struct EmulateRequested {
  std::string worker;
  wire::Emulation emulation;
  bool set_speed = false;
  bool set_memory = false;
  bool set_link = false;
};
/// The user stops the job (SIGINT of `train`): it fails with the reason; it can be resumed.
struct CancelRequested {
  std::string reason;
};
/// Time passed; sent no later than NextDeadline(). All that had come by its time was handled before
/// it: only then does silence mean something.
struct Ticked {};

using CoordinatorEvent = std::variant<Submitted,
                                      Received,
                                      Disconnected,
                                      ProcessExited,
                                      Planned,
                                      CheckpointCommitted,
                                      DrainRequested,
                                      EmulateRequested,
                                      CancelRequested,
                                      Ticked>;

// ---- Actions, carried out in order ----

/// Durable before the next action is carried out. A shell that cannot must end the coordinator
/// process: the workers train on, and a restarted coordinator adopts them.
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
/// Answered by CheckpointCommitted.
struct CommitCheckpoint {
  int64_t step = 0;
  int64_t generation = 0;
  std::vector<std::string> parts;  ///< By writer's rank; opaque.
  std::string plan_json;
  std::optional<double> validation_loss;  ///< After the step, when it is known already.
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
/// A worker was lost, not released: a launcher with `restart: true` starts it again; one that still
/// runs its process (cut off, hung) ends it.
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

/// Thread: one caller at a time. A copy is an independent machine.
class Coordinator {
 public:
  /// Waits for Submitted. Generations are numbered above `generation_counter`.
  explicit Coordinator(int64_t generation_counter = 0);
  /// Goes on with `job` from what its predecessor stored: adopts the workers that say Hello. The
  /// checkpoints are job.checkpoints, not those that were stored: one of these may have been
  /// damaged meanwhile.
  Coordinator(const DurableState& restored, const Job& job, Time now);
  Coordinator(const Coordinator& other);
  Coordinator& operator=(const Coordinator& other);
  Coordinator(Coordinator&& other) noexcept;
  Coordinator& operator=(Coordinator&& other) noexcept;
  ~Coordinator();

  std::vector<CoordinatorAction> Handle(const CoordinatorEvent& event, Time now);

  /// When Ticked must come at the latest; none: only events change anything.
  std::optional<Time> NextDeadline() const;

  /// For people and scripts.
  wire::JobStatus StatusAt(Time now) const;

  /// What must hold between any two events; an error says what does not. For tests.
  Status CheckInvariants() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace heddle::elastic
