/// \file
/// Whose an output folder is, and what a run leaves in it for people and scripts: events.jsonl,
/// appended and flushed line by line; job.json, replaced atomically whenever a worker comes or
/// goes; and profile.json, what the last plan was looked for with.
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

/// One job's, and one living coordinator's: job.hash says whose, for ever, and the lock of
/// coordinator.lock, which the kernel frees with the process, that somebody works in it. Everything
/// that is written below an output folder comes after it. Thread: any.
///
/// Where coordinators take turns (StoreTerm) coordinator.lock also says in which term of which
/// store it was taken, and a later term of that store takes the folder from a process that still
/// holds the lock: one that was stopped, or whose machine cannot be reached.
class FolderClaim {
 public:
  struct Options {
    std::string folder;
    std::string job_hash;
    std::string job_text;
    /// The job began in the folder by the word of its coordinator, whatever the folder says.
    bool known = false;
    StoreTerm term = {};
  };
  /// A folder that is new becomes the job's. Errors: kFailedPrecondition (another coordinator works
  /// in it), kInvalidArgument (it is another job's, or holds a run that nobody claimed).
  static Result<std::unique_ptr<FolderClaim>> Take(const Options& options);
  /// The job was not taken: a folder that this claim has made its own is nobody's again.
  void Undo();
  const std::string& folder() const { return folder_; }
  const std::string& job_hash() const { return job_hash_; }

 private:
  FolderClaim(std::string folder, std::string job_hash)
      : folder_(std::move(folder)),
        job_hash_(std::move(job_hash)) {}
  /// Errors: kFailedPrecondition when it is another one's.
  Status Lock(const StoreTerm& term);
  Status Mark(const std::string& job_text, bool known);

  const std::string folder_;
  const std::string job_hash_;
  bool made_folder_ = false;
  bool made_lock_ = false;
  bool marked_ = false;
  UniqueFd lock_;
};

/// The hash of the job that the folder belongs to. Errors: kNotFound (it is nobody's), those of
/// reading.
Result<std::string> RunFolderOwner(const std::string& folder);

/// What job.json names: HOST:PORT of the coordinator and of its metrics.
struct RunAddresses {
  std::string coordinator;
  std::string metrics;
  bool guarded = false;  ///< The coordinator takes calls with a certificate only.
};

/// The text of job.json: {"coordinator", "metrics", "certificates": true (only where the
/// coordinator is guarded), "workers": [{"name", "pid"}, …]}.
std::string JobFileJson(const RunAddresses& addresses,
                        const std::vector<ListWorkers::Entry>& workers);

/// Thread: one caller of Replace at a time, else any.
class RunFolder {
 public:
  /// kAnew: events.jsonl becomes another file of the same content, so that nothing reaches it from
  /// a process that has the one before open.
  enum class Log : uint8_t { kSame, kAnew };
  /// Makes the folder; an existing events.jsonl is appended to, after the part of a line that a
  /// crash has left at its end was removed.
  static Result<std::unique_ptr<RunFolder>> Open(const std::string& path, Log log = Log::kSame);

  /// events.jsonl.
  EventLog& events() { return *events_; }
  /// Replaces a file of the folder atomically.
  Status Replace(const std::string& name, const std::string& text) const;

  const std::string& path() const { return path_; }

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  std::unique_ptr<EventLog> events_;
};

}  // namespace heddle::elastic
