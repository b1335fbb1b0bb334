/// \file
/// What the coordinator is told.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "elastic/control/connection.h"
#include "elastic/control/planning.h"
#include "elastic/control/policy.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

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
  bool last = false;   ///< None of those that were launched runs, or will be started again.
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
  std::vector<int64_t> pruned = {};  ///< Steps of older ones that were removed after it.
};
/// Checkpoints of these steps were removed, after no commit.
struct CheckpointsPruned {
  std::vector<int64_t> steps;
};
struct DrainRequested {
  std::string worker;  ///< Name or host.
};
/// It stays, if it has not left: its drains, and notices that it told of, are taken back.
struct DrainCancelled {
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
/// The machine that all workers run on is to be given up (SIGTERM of `train`): they leave, and
/// those that come do.
struct SuspendRequested {
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
                                      CheckpointsPruned,
                                      DrainRequested,
                                      DrainCancelled,
                                      EmulateRequested,
                                      CancelRequested,
                                      SuspendRequested,
                                      Ticked>;

}  // namespace heddle::elastic
