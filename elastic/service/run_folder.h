/// \file
/// Whose an output folder is, and what a run leaves in it for people and scripts: events.jsonl,
/// appended and flushed line by line, and job.json, replaced atomically whenever a worker comes or
/// goes.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/system/unique_fd.h"
#include "elastic/control/actions.h"

namespace heddle::elastic {

/// One job's, and one living coordinator's: job.hash says whose, for ever, and the lock of
/// coordinator.lock, which the kernel frees with the process, that somebody works in it. Everything
/// that is written below an output folder comes after it. Thread: any.
class FolderClaim {
 public:
  /// A folder that is new becomes the job's; `known` says that this job began in it by the word of
  /// its coordinator, whatever the folder says. Errors: kFailedPrecondition (another coordinator
  /// works in it), kInvalidArgument (it is another job's, or holds a run that nobody claimed).
  static Result<std::unique_ptr<FolderClaim>> Take(const std::string& folder,
                                                   const std::string& job_hash,
                                                   const std::string& job_text,
                                                   bool known = false);
  /// The job was not taken: a folder that this claim has made its own is nobody's again.
  void Undo();
  const std::string& folder() const { return folder_; }
  const std::string& job_hash() const { return job_hash_; }

 private:
  FolderClaim(std::string folder, std::string job_hash)
      : folder_(std::move(folder)),
        job_hash_(std::move(job_hash)) {}
  Status Mark(const std::string& job_text, bool known);

  const std::string folder_;
  const std::string job_hash_;
  bool made_folder_ = false;
  bool made_lock_ = false;
  bool marked_ = false;
  UniqueFd lock_;
};

/// Thread: one caller at a time.
class RunFolder {
 public:
  /// Makes the folder; an existing events.jsonl is appended to, after the part of a line that a
  /// crash has left at its end was removed.
  static Result<std::unique_ptr<RunFolder>> Open(const std::string& path);

  /// Addresses that job.json names: HOST:PORT of the coordinator and of its metrics.
  void SetAddresses(const std::string& coordinator, const std::string& metrics);

  /// On an error the file holds none of the event.
  Status Append(const LogEvent& event);
  /// What was appended outlives the machine's end.
  Status Sync();
  /// {"coordinator", "metrics", "workers": [{"name", "pid"}, …]}
  Status WriteJobFile(const std::vector<ListWorkers::Entry>& workers);

  const std::string& path() const { return path_; }

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::string coordinator_;
  std::string metrics_;
  UniqueFd events_;
};

}  // namespace heddle::elastic
