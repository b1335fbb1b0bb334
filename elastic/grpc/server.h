/// \file
/// The coordinator's shell: one event-loop thread that owns the state machine, gRPC streams around
/// it, a thread each for the store, planning and commits beside it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "elastic/control/coordinator/coordinator.h"
#include "elastic/grpc/event_bytes.h"
#include "elastic/identity/authority.h"
#include "elastic/identity/credentials.h"
#include "elastic/store/store.h"

namespace heddle::elastic {

/// Where the text of a job comes from.
enum class JobOrigin : uint8_t {
  kSubmitted,  ///< Somebody has just sent it.
  kStored,     ///< A predecessor had taken it.
};

/// What the shell calls. Every function may be empty where a test needs it not; exceptions must not
/// leave them.
struct CoordinatorHooks {
  /// Reads a job file's text into a Job (without a secret). `path`: where it came from, for
  /// relative paths and messages; of a stored job a file in its output folder. Thread: gRPC's or
  /// the caller of Start.
  std::function<Result<Job>(const std::string& yaml, const std::string& path, JobOrigin origin)>
      read_job;
  /// Whether a worker's profile can be planned with. Thread: gRPC's.
  std::function<Status(const std::string& profile_json)> check_profile;
  /// Finds a plan, lowers it, fills the outcome (request_id is filled by the shell). Ends soon,
  /// without a plan, once `stop` is requested: for a newer request, or at the server's end. Thread:
  /// planner's.
  std::function<PlanOutcome(
      const Job& job, const PlanRequest& request, const std::stop_token& stop)>
      plan;
  /// Commits a checkpoint from its parts. Thread: the commit thread.
  std::function<CheckpointCommitted(const Job& job, const CommitCheckpoint& commit)> commit;
  /// Adds the loss to a checkpoint whose commit was asked for before; returns the steps of those
  /// that were pruned since. Thread: the commit thread.
  std::function<std::vector<int64_t>(const Job& job, const NoteValidation& note)> note_validation;
  /// Removes what an abandoned save has left. Thread: the commit thread.
  std::function<void(const Job& job, const AbandonCheckpoint& abandon)> abandon;
  /// Newest sound committed checkpoint's steps found on storage, ascending, when a job starts;
  /// merged with the store's. Thread: the caller of Submit.
  std::function<std::vector<int64_t>(const Job& job)> find_checkpoints;
  /// The job that was read last is stored, and so the coordinator's. Thread: the caller of Submit.
  std::function<void(const Job& job)> taken;
  /// A job that was read was not taken after all: it could not be stored. Thread: the caller of
  /// Submit.
  std::function<void(const Job& job)> not_taken;
  /// An entry of the run's log. Thread: the event loop; must not block for long.
  std::function<void(const LogEvent& event)> log;
  /// What the log of the job has from a byte on. Thread: gRPC's.
  std::function<Result<EventBytes>(int64_t offset)> read_events;
  /// The workers of job.json changed. Thread: the event loop.
  std::function<void(const std::vector<ListWorkers::Entry>& workers)> list_workers;
  /// A worker was lost. Thread: the event loop.
  std::function<void(const WorkerGone& gone)> worker_gone;
  /// A call was refused, for this `reason` of heddle_control_refused_total. Thread: gRPC's.
  std::function<void(std::string_view reason)> refused;
  /// A certificate was handed out, by "token" or "renewal". Thread: gRPC's.
  std::function<void(std::string_view by)> issued;
  /// When the coordinator's certificate ends, in seconds since the epoch: at first, and for each
  /// that takes its place. Thread: that of Start, then one of its own.
  std::function<void(double ends)> certificate;
  /// The job ended. Thread: the event loop; Stop must not be called from here.
  std::function<void(const EndJob& end)> ended;
};

/// What certificates of workers are made with; without a key none is made.
struct Issuer {
  KeyAndCertificate authority;
  std::chrono::seconds life = kRequestedLife;  ///< Of a certificate.
};

struct CoordinatorServerOptions {
  std::string listen = "127.0.0.1:0";  ///< HOST:PORT; port 0: any free one.
  /// The coordinator's certificate: all connections are TLS, and access.h says who may do what. Its
  /// folder is looked at, and another one that is put there counts for new connections.
  /// Empty: everybody who reaches the port may do everything.
  Credentials credentials;
  Issuer issuer = {};
  StateStore* store =
      nullptr;  ///< Optional: without it nothing outlives the process. Outlives the server.
  CoordinatorHooks hooks;
  /// Go on with the store's job although it failed (`train` on the same folder).
  bool resume_failed = false;
};

/// Thread: any; Stop not from hooks.
class CoordinatorServer {
 public:
  /// Listens, and goes on with the store's job when it has one that is not finished.
  /// Errors: kResourceExhausted (port taken), the store's, read_job's.
  static Result<std::unique_ptr<CoordinatorServer>> Start(CoordinatorServerOptions options);
  ~CoordinatorServer();  ///< Stop().

  /// HOST:PORT that workers connect to.
  const std::string& address() const;
  /// Whether a job was found in the store and goes on.
  bool resumed() const;
  const std::string& resumed_job_id() const;

  /// One job at a time: the next may come when the one before has ended. The job is stored on
  /// return; after an error it never was.
  /// Errors: read_job's; kFailedPrecondition when a job runs already; the store's, kUnavailable
  /// when it did not answer within seconds.
  Status Submit(const std::string& yaml, const std::string& path);
  wire::JobStatus StatusNow() const;
  void Cancel(const std::string& reason);
  /// All workers leave, those that come later too, and the job is suspended.
  void Suspend(const std::string& reason);
  /// A launched process ended: faster than waiting for its stream to break.
  void ReportExit(const ProcessExited& exit);

  /// OK, or why nothing more will happen: another coordinator has written to the store.
  heddle::Status Health() const;
  /// Why nothing has been stored for a while, so that changes and the job's end wait; empty: it can
  /// be.
  std::string Stall() const;
  /// Waits until the job has ended and its workers' streams are closed; nothing when `deadline`
  /// passed.
  std::optional<EndJob> WaitForEnd(Deadline deadline);
  /// Ends streams and threads; idempotent. Workers see a coordinator that went away. Waits for a
  /// write of the store that has begun.
  void Stop();

 private:
  class Impl;
  explicit CoordinatorServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::elastic
