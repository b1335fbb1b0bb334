/// \file
/// A temporary folder for files that are being uploaded to an object store. If its process dies,
/// the next process that creates such a folder removes it.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "base/system/unique_fd.h"

namespace heddle::checkpoint {

/// A temporary folder with a lock. Thread: any.
class SpoolFolder {
 public:
  /// Creates a folder in $TMPDIR, or /tmp, and removes those of dead processes. Errors: those of
  /// the file system.
  static Result<std::unique_ptr<SpoolFolder>> Create();
  ~SpoolFolder();
  SpoolFolder(const SpoolFolder&) = delete;
  SpoolFolder& operator=(const SpoolFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  SpoolFolder(std::string path, UniqueFd lock);

  const std::string path_;
  const UniqueFd lock_;  ///< Lock of the folder, held while its process lives.
};

}  // namespace heddle::checkpoint
