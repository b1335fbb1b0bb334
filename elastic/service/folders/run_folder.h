/// \file
/// The owner of an output folder, and the files that a run keeps in it for people and scripts:
/// events.jsonl, appended line by line; job.json, replaced atomically whenever a worker comes or
/// goes; and profile.json, the input of the last search for a plan.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/system/unique_fd.h"
#include "elastic/control/actions.h"
#include "elastic/service/folders/event_log.h"
#include "elastic/store/store.h"

namespace heddle::elastic {

/// The claim of one job and one running coordinator to an output folder. The file job.hash records
/// the job for good. The lock on coordinator.lock, which the kernel releases with the process,
/// keeps other coordinators out. A coordinator writes below an output folder only while it has the
/// claim. Thread: any.
///
/// Where coordinators take turns (StoreTerm), coordinator.lock also records the store and the term
/// in which it was taken. A later term of the same store takes the folder over from a process that
/// still holds the lock, such as a stopped one or one on a machine that cannot be reached.
class FolderClaim {
 public:
  struct Options {
    std::string folder;
    std::string job_hash;
    std::string job_text;
    /// The coordinator's store says that the job began in this folder: a log without job.hash does
    /// not refuse the claim.
    bool known = false;
    StoreTerm term = {};  ///< The coordinator's term; empty for a store of one coordinator.
  };
  /// Claims the folder and makes it if it is missing; an unclaimed folder becomes the job's.
  /// Errors: kFailedPrecondition (another coordinator works in it), kInvalidArgument (it is another
  /// job's, or has a log but no job.hash), those of the file system.
  static Result<std::unique_ptr<FolderClaim>> Take(const Options& options);
  /// Gives the claim up for a job that was not taken: removes what this claim has made and releases
  /// the lock.
  void Undo();
  const std::string& folder() const { return folder_; }
  const std::string& job_hash() const { return job_hash_; }

 private:
  FolderClaim(std::string folder, std::string job_hash)
      : folder_(std::move(folder)),
        job_hash_(std::move(job_hash)) {}
  /// Takes the lock. Errors: kFailedPrecondition (another coordinator has it).
  Status Lock(const StoreTerm& term);
  /// Makes the folder the job's, or checks that it is.
  Status Mark(const std::string& job_text, bool known);

  const std::string folder_;
  const std::string job_hash_;
  bool made_folder_ = false;  ///< The folder was missing.
  bool made_lock_ = false;    ///< The lock file was missing.
  bool marked_ = false;       ///< The folder became the job's by this claim.
  UniqueFd lock_;
};

/// The hash of the job that the folder belongs to. Errors: kNotFound (it belongs to none), those of
/// reading.
Result<std::string> RunFolderOwner(const std::string& folder);

/// The addresses in job.json: HOST:PORT of the coordinator and of its metrics.
struct RunAddresses {
  std::string coordinator;
  std::string metrics;
  bool guarded = false;  ///< The coordinator accepts only calls with a certificate.
};

/// The text of job.json: {"coordinator", "metrics", "certificates": true (only if the coordinator
/// is guarded), "workers": [{"name", "pid"}, …]}.
std::string JobFileJson(const RunAddresses& addresses,
                        const std::vector<ListWorkers::Entry>& workers);

/// The files of a run. Thread: one caller of Replace at a time, else any.
class RunFolder {
 public:
  /// kAnew: events.jsonl is replaced by a copy, so that a process that still has the old file open
  /// cannot write to it.
  enum class Log : uint8_t { kSame, kAnew };
  /// Opens the folder and its events.jsonl (EventLog::Open), and makes both if they are missing.
  /// Errors: those of the file system.
  static Result<std::unique_ptr<RunFolder>> Open(const std::string& path, Log log = Log::kSame);

  /// The writer of events.jsonl.
  EventLog& events() { return *events_; }
  /// Replaces the file `name` of the folder atomically.
  Status Replace(const std::string& name, const std::string& text) const;

  const std::string& path() const { return path_; }

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  std::unique_ptr<EventLog> events_;
};

}  // namespace heddle::elastic
