/// \file
/// Where jobs that others submit may write: below folders, and S3 prefixes, that the operator of
/// the coordinator has named. Whoever may submit has no other way to make the coordinator write.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/job/job.h"

namespace heddle::elastic {

/// Thread: values.
class OutputRoots {
 public:
  /// `roots`: folders, made where they are missing, and URLs "s3://BUCKET" or "s3://BUCKET/PREFIX".
  /// Errors: kInvalidArgument (a URL with other words in it), those of making a folder.
  static Result<OutputRoots> Make(const std::vector<std::string>& roots);

  /// Whether the job may write to its folder `output` and to where it keeps checkpoints. Both lie
  /// below a root, symbolic links followed, and in no other job's folder; nothing is written.
  /// Returns the output folder as the file system has it, without links: what is looked at here is
  /// what is written to. Errors: kPermissionDenied with one line.
  Result<std::string> Check(const job::JobConfig& job, const std::string& output) const;

  /// The first folder; empty: there is none.
  std::string FirstFolder() const { return folders_.empty() ? "" : folders_.front(); }

 private:
  // The folder without links, below a root.
  Result<std::string> Place(const std::string& what, const std::string& path) const;
  Status CheckOwners(const std::string& what,
                     const std::string& path,
                     const std::string& first,
                     const std::string& job_hash) const;
  Status CheckUrl(const std::string& url) const;
  Status Refused(const std::string& what, const std::string& path) const;

  std::vector<std::string> folders_;  ///< As the file system has them, without links.
  std::vector<std::string> urls_;     ///< Without a slash at their end.
};

}  // namespace heddle::elastic
