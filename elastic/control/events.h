/// \file
/// The events that the coordinator handles.
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
/// The launcher saw the process end. The worker is lost at once, without a grace period.
struct ProcessExited {
  std::string worker;
  int64_t pid = 0;
  std::string reason;  ///< "killed by SIGKILL", "exit code 1".
  bool last = false;   ///< No launched process runs any more, and none will be restarted.
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
  std::vector<int64_t> pruned = {};  ///< Steps of older checkpoints that were removed after it.
};
/// Checkpoints of these steps were removed independently of a commit.
struct CheckpointsPruned {
  std::vector<int64_t> steps;
};
struct DrainRequested {
  std::string worker;  ///< Name or host.
};
/// The worker stays if it has not left: drain requests, and termination notices that it reported,
/// are withdrawn.
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
/// The user stops the job (SIGINT of `train`). It fails with the reason and can be resumed.
struct CancelRequested {
  std::string reason;
};
/// The machine of all workers is about to be taken away (SIGTERM of `train`). All workers leave,
/// also those that join later.
struct SuspendRequested {
  std::string reason;
};
/// Time passed. It is sent no later than NextDeadline(), and after every event that had arrived by
/// then: a worker counts as silent only if nothing from it is still in a queue.
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
