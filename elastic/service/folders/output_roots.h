/// \file
/// The folders and S3 prefixes, named by the operator of the coordinator, below which submitted
/// jobs may write. A client that may submit cannot make the coordinator write anywhere else.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/job/job.h"

namespace heddle::elastic {

/// The places where submitted jobs may write. Thread: a value.
class OutputRoots {
 public:
  /// `roots`: folders, which are made if they are missing, and URLs "s3://BUCKET" or
  /// "s3://BUCKET/PREFIX". Errors: kInvalidArgument (another URL), those of making a folder.
  static Result<OutputRoots> Make(const std::vector<std::string>& roots);

  /// Checks that the job may write to its folder `output` and to the folder or URL of its
  /// checkpoints: both must lie below a root, with symbolic links resolved, and in no other job's
  /// folder. Writes nothing. Returns the output folder with its links resolved, which is the one to
  /// write to. Errors: kPermissionDenied with one line; those of the file system.
  Result<std::string> Check(const job::JobConfig& job, const std::string& output) const;

  /// The first root that is a folder; empty if there is none.
  std::string FirstFolder() const { return folders_.empty() ? "" : folders_.front(); }

 private:
  // Resolves the links of a folder and checks that it lies below a root.
  Result<std::string> Place(const std::string& what, const std::string& path) const;
  // Checks that no folder from `first` up to its root is another job's.
  Status CheckOwners(const std::string& what,
                     const std::string& path,
                     const std::string& first,
                     const std::string& job_hash) const;
  Status CheckUrl(const std::string& url) const;
  Status Refused(const std::string& what, const std::string& path) const;

  std::vector<std::string> folders_;  ///< Root folders with their links resolved.
  std::vector<std::string> urls_;     ///< Root URLs without a slash at their end.
};

}  // namespace heddle::elastic
