/// \file
/// The worker process: one device of a job. Connects to the coordinator, opens its data endpoint
/// and its metrics, and carries out what elastic/member/member.h decides with a Trainer.
#pragma once

#include <string>

#include "base/status.h"
#include "comm/communicator.h"
#include "engine/job/job.h"

namespace heddle::elastic {

struct WorkerOptions {
  std::string coordinator;  ///< As SessionOptions::coordinator.
  std::string name;         ///< As NameOfRank (elastic/launcher/rank_name.h) takes it.
  /// Folder of the worker's certificate, or of several workers' (elastic/identity/credentials.h);
  /// empty: none.
  std::string certificates;
  /// File of a join token: the worker gets its certificate by it, and keeps it in a folder of its
  /// name below `certificates`. Empty: it has one.
  std::string join_token_file;
  /// Address that other workers and Prometheus reach this one under, or an interface with one;
  /// empty: that of the route to the coordinator.
  std::string bind_host;
  comm::TransportOptions transport_options;  ///< As comm::EndpointOptions has them.
  /// Workers of one are lost together (a rack, a spot pool); empty: unknown.
  std::string failure_domain;
  bool emulated = false;  ///< `emulation` replaces the job file's.
  job::Emulation emulation;
};

/// Runs until the coordinator releases the worker, or SIGTERM has been answered by handing its
/// state over. Returns the process' exit code: 0 released, 1 given up or failed, 2 refused or the
/// job does not fit, 75 (kExitRequeue) released while the job waits for workers, or told to end
/// where no coordinator answers. A second signal ends the process at once. Thread: the process'
/// main thread; handles SIGTERM and SIGINT.
int RunWorker(const WorkerOptions& options);

}  // namespace heddle::elastic
