/// \file
/// The worker process: one device of a job. It connects to the coordinator, opens its data endpoint
/// and its metrics, and performs the actions of elastic/member/member.h with a Trainer.
#pragma once

#include <string>

#include "base/status.h"
#include "comm/communicator.h"
#include "engine/job/job.h"

namespace heddle::elastic {

struct WorkerOptions {
  std::string coordinator;  ///< HOST:PORT or a list, as SessionOptions::coordinator.
  std::string name;         ///< The requested name, as NameOfRank (elastic/launcher/rank_name.h).
  /// Folder of the worker's certificate, or folder of several workers' folders (WorkerFolder);
  /// empty: no certificate.
  std::string certificates;
  /// File of a join token, by which the worker gets its certificate and keeps it in a folder of its
  /// name below `certificates`. Empty: it needs none.
  std::string join_token_file;
  /// Address at which other workers and Prometheus reach this one, or an interface that has it;
  /// empty: that of the route to the coordinator.
  std::string bind_host;
  comm::TransportOptions transport_options;  ///< As in comm::EndpointOptions.
  /// The group of workers that are lost together (a rack, a spot pool); empty: unknown.
  std::string failure_domain;
  /// Name of the device to compute on (engine/machine/device_name.h); empty: the job names it.
  std::string device;
  bool emulated = false;  ///< `emulation` replaces the job file's.
  job::Emulation emulation;
};

/// Runs until the coordinator releases the worker; after SIGTERM or SIGINT that is once its state
/// is handed over. A second signal ends the process at once. Returns the process's exit code: 0
/// released, 1 given up or failed, 2 refused or the job does not fit, 75 (kExitRequeue) released
/// while the job waits for workers, or told to end while no coordinator answers. Thread: the
/// process's main thread; installs handlers for SIGTERM and SIGINT.
int RunWorker(const WorkerOptions& options);

}  // namespace heddle::elastic
