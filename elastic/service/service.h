/// \file
/// The coordinator of a job with everything around it: planner, checkpoints, the run's folder,
/// metrics, service discovery and the status page. `train` and `serve` are this with and without
/// workers of their own.
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
  Credentials credentials = {};        ///< As CoordinatorServerOptions has them.
  Issuer issuer = {};                  ///< Likewise.
  std::string metrics_host = "127.0.0.1";
  int metrics_port = 0;
  std::unique_ptr<StateStore> store = {};  ///< Of the durable facts.
  std::string default_output = {};  ///< Folder of a job that names none: default_output/NAME.
  /// Where submitted jobs may write; nothing: anywhere. A stored job that goes on has been looked
  /// at.
  std::optional<OutputRoots> output_roots = {};
  /// Of the job's folder, whatever the job names; null: the service claims the one that it names.
  std::shared_ptr<FolderClaim> claim = {};
  std::function<void(const LogEvent&)>
      observer;  ///< Sees every event; may be empty. Thread: the event loop.
  /// How many workers the job has now; may be empty. Thread: the event loop.
  std::function<void(int64_t workers)> workers_listed = {};
  Duration paused_timeout =
      Duration::zero();  ///< How long a job waits for workers when it has too few; 0: for ever.
  bool ends_suspended = false;  ///< A job that is suspended ends; else it waits for workers.
  std::function<void(const WorkerGone&)> worker_gone = {};  ///< Likewise.
  /// Workers may live on without this process and hold the job's state: checkpoints are then not
  /// read before they are adopted, and one none of which is sound is no reason to refuse the job.
  bool workers_outlive = false;
};

/// Thread: any.
class Service {
 public:
  /// Errors: kResourceExhausted or kUnavailable (port taken), kFailedPrecondition (another
  /// coordinator uses the store, or works in the stored job's folder), kDataLoss (the store),
  /// kInvalidArgument (a stored job that no longer reads, or none of its checkpoints is sound).
  static Result<std::unique_ptr<Service>> Start(ServiceOptions options);
  ~Service();

  CoordinatorServer& server();
  /// As StateStore::Owned: after an error nothing is written any more, and the service is to end.
  Status Owned() const;
  const std::string& metrics_address() const;

 private:
  class Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::elastic
