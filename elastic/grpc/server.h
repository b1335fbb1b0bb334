/// \file
/// The coordinator's server: an event-loop thread that owns the state machine, gRPC streams and
/// calls that post to it, and one thread each for the store, planning and commits.
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
  kSubmitted,  ///< From a submission.
  kStored,     ///< From the store: an earlier coordinator had taken the job.
};

/// Functions that the server calls. Those that a test does not need may be empty, but read_job,
/// plan and commit are called unchecked. No function may throw.
struct CoordinatorHooks {
  /// Reads a job file's text into a Job (without a secret). `path`: the file that it came from, for
  /// relative paths and messages; for a stored job, job.yaml in its output folder. Thread: gRPC's,
  /// the caller of Submit or the caller of Start.
  std::function<Result<Job>(const std::string& yaml, const std::string& path, JobOrigin origin)>
      read_job;
  /// Returns OK if a plan can be made with a worker's profile. Thread: gRPC's.
  std::function<Status(const std::string& profile_json)> check_profile;
  /// Finds a plan, lowers it and fills in the outcome, but for request_id, which the server fills
  /// in. Returns soon, without a plan, once `stop` is requested: by a newer request, or at the
  /// server's end. Thread: the planner's.
  std::function<PlanOutcome(
      const Job& job, const PlanRequest& request, const std::stop_token& stop)>
      plan;
  /// Commits a checkpoint from its shards; the server fills in step and generation. Thread: the
  /// commit thread.
  std::function<CheckpointCommitted(const Job& job, const CommitCheckpoint& commit)> commit;
  /// Adds the validation loss to a checkpoint whose commit was requested before; returns the steps
  /// of the checkpoints that were pruned for it. Thread: the commit thread.
  std::function<std::vector<int64_t>(const Job& job, const NoteValidation& note)> note_validation;
  /// Removes the files of an abandoned save. Thread: the commit thread.
  std::function<void(const Job& job, const AbandonCheckpoint& abandon)> abandon;
  /// Returns the steps of the sound committed checkpoints found on storage, ascending. Called when
  /// a job starts or goes on. Thread: gRPC's, the caller of Submit or the caller of Start.
  std::function<std::vector<int64_t>(const Job& job)> find_checkpoints;
  /// Called when the job that was read last is stored, and so taken. Thread: gRPC's or the caller
  /// of Submit.
  std::function<void(const Job& job)> taken;
  /// Called when a job that was read could not be stored, and so was not taken. Thread: gRPC's or
  /// the caller of Submit.
  std::function<void(const Job& job)> not_taken;
  /// Writes an entry of the run's log. Thread: the event loop; must not block for long.
  std::function<void(const LogEvent& event)> log;
  /// Reads the log of the job from byte `offset` on. Thread: gRPC's.
  std::function<Result<EventBytes>(int64_t offset)> read_events;
  /// Called when the workers that job.json lists have changed. Thread: the event loop.
  std::function<void(const std::vector<ListWorkers::Entry>& workers)> list_workers;
  /// Called when a worker was lost. Thread: the event loop.
  std::function<void(const WorkerGone& gone)> worker_gone;
  /// Called for each refused call; `reason` is the label of heddle_control_refused_total. Thread:
  /// gRPC's.
  std::function<void(std::string_view reason)> refused;
  /// Called for each issued certificate; `by` is "token" or "renewal". Thread: gRPC's.
  std::function<void(std::string_view by)> issued;
  /// Called with the end of the coordinator's certificate, in seconds since the epoch, at the start
  /// and for each certificate that replaces it. Thread: the caller of Start, then the port's.
  std::function<void(double ends)> certificate;
  /// Called when the job has ended. Thread: the event loop; must not call Stop.
  std::function<void(const EndJob& end)> ended;
};

/// What the coordinator issues workers' certificates with; it issues none without a key.
struct Issuer {
  KeyAndCertificate authority;
  std::chrono::seconds life = kRequestedLife;  ///< Life of each issued certificate.
};

struct CoordinatorServerOptions {
  std::string listen = "127.0.0.1:0";  ///< HOST:PORT; port 0: any free one.
  /// The coordinator's certificate. With it all connections are TLS, access.h says which role may
  /// make which call, and a certificate that replaces it in its folder is used for new connections.
  /// Empty: every client that reaches the port may make every call.
  Credentials credentials;
  Issuer issuer = {};
  StateStore* store = nullptr;  ///< Outlives the server. Null: no state outlives the process.
  CoordinatorHooks hooks;
  /// True: resumes the store's job even if it failed (`train` on the same folder).
  bool resume_failed = false;
};

/// The coordinator's server. Thread: any; hooks must not call Stop.
class CoordinatorServer {
 public:
  /// Listens, and resumes the store's job unless it has finished or failed (see resume_failed).
  /// Errors: kResourceExhausted (port taken), those of the store, of read_job and of the
  /// certificates.
  static Result<std::unique_ptr<CoordinatorServer>> Start(CoordinatorServerOptions options);
  ~CoordinatorServer();  ///< Stop().

  /// HOST:PORT to connect to.
  const std::string& address() const;
  /// True if Start found a job in the store and resumed it.
  bool resumed() const;
  /// The id of the resumed job; empty if none was.
  const std::string& resumed_job_id() const;

  /// Submits a job; the job before must have ended. The job is stored on return; after an error it
  /// is as if it had never been submitted. Errors: those of read_job; kFailedPrecondition (another
  /// job runs); those of the store; kUnavailable (not stored within kStoredWithin).
  Status Submit(const std::string& yaml, const std::string& path);
  /// The job's status now; empty once the server stops.
  wire::JobStatus StatusNow() const;
  /// Requests that the job be cancelled; `reason` is logged. Does not wait.
  void Cancel(const std::string& reason);
  /// Requests that the job be suspended: all workers leave, also those that join later. Does not
  /// wait.
  void Suspend(const std::string& reason);
  /// Reports that a launched process has ended, which is known sooner than its stream breaks.
  void ReportExit(const ProcessExited& exit);

  /// OK, or the error for which the server handles nothing more: another coordinator has written to
  /// the store, or its content is corrupt.
  heddle::Status Health() const;
  /// Why the store is stalled, so that changes and the job's end wait; empty while it works.
  std::string Stall() const;
  /// Waits until the job has ended, then up to kStreamsCloseWithin until its workers' streams are
  /// closed. Returns nullopt if the job has not ended by `deadline`.
  std::optional<EndJob> WaitForEnd(Deadline deadline);
  /// Ends streams and threads; idempotent. Workers find their coordinator gone. Waits for a write
  /// of the store that has begun.
  void Stop();

 private:
  class Impl;
  explicit CoordinatorServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::elastic
