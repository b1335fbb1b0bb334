/// \file
/// The coordinator of a job with everything that it needs: planner, checkpoints, the run's folder,
/// metrics, service discovery and the status page. `serve` runs it alone, `train` with local
/// workers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "elastic/grpc/server.h"
#include "elastic/identity/credentials.h"
#include "elastic/service/folders/output_roots.h"
#include "elastic/service/folders/run_folder.h"
#include "elastic/store/store.h"
#include "engine/job/job.h"

namespace heddle::elastic {

struct ServiceOptions {
  std::string listen = "127.0.0.1:0";  ///< HOST:PORT of the coordinator; port 0: any free one.
  Credentials credentials = {};        ///< As in CoordinatorServerOptions.
  Issuer issuer = {};                  ///< As in CoordinatorServerOptions.
  std::string metrics_host = "127.0.0.1";
  int metrics_port = 0;                    ///< 0: any free one.
  std::unique_ptr<StateStore> store = {};  ///< The store of the durable state; not null.
  /// The output folder of a job that names none is default_output/NAME.
  std::string default_output = {};
  /// Where submitted jobs may write; nullopt: anywhere. A stored job was checked when it was
  /// submitted.
  std::optional<OutputRoots> output_roots = {};
  /// The claim to the job's folder, which replaces the folder that the job names. Null: the service
  /// claims the folder that the job names.
  std::shared_ptr<FolderClaim> claim = {};
  /// Called for every event; may be empty. Thread: the event loop.
  std::function<void(const LogEvent&)> observer;
  /// Called with the number of the job's workers when it changes; may be empty. Thread: the event
  /// loop.
  std::function<void(int64_t workers)> workers_listed = {};
  /// How long a job waits for workers when it has too few; 0: for ever.
  Duration paused_timeout = Duration::zero();
  bool ends_suspended = false;  ///< A suspended job ends; otherwise it waits for workers.
  /// Called when a worker was lost; may be empty. Thread: the event loop.
  std::function<void(const WorkerGone&)> worker_gone = {};
  /// Workers may outlive this process and hold the state of a stored job. The job's checkpoints are
  /// then not read before its workers are adopted, and the job is resumed even if none is sound.
  bool workers_outlive = false;
};

/// A running coordinator. Thread: any.
class Service {
 public:
  /// Starts the coordinator and resumes the store's job, if there is one. Errors:
  /// kResourceExhausted or kUnavailable (port taken), kFailedPrecondition (another
  /// coordinator uses the store, or works in the stored job's folder), kDataLoss (the store),
  /// kInvalidArgument (a stored job that no longer reads, or none of its checkpoints is sound).
  static Result<std::unique_ptr<Service>> Start(ServiceOptions options);
  ~Service();

  CoordinatorServer& server();
  /// OK while this coordinator owns the store (StateStore::Owned). After an error it writes nothing
  /// any more, and is to be ended.
  Status Owned() const;
  /// HOST:PORT of the metrics and the status page.
  const std::string& metrics_address() const;

 private:
  class Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::elastic
