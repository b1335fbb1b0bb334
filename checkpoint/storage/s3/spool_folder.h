/// \file
/// A folder for files on their way to an object store. It goes with its process, however that ends:
/// the next one to make such a folder removes those whose process is gone.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "base/system/unique_fd.h"

namespace heddle::checkpoint {

/// Thread: any.
class SpoolFolder {
 public:
  /// Makes it in $TMPDIR, or /tmp. Errors: those of the file system.
  static Result<std::unique_ptr<SpoolFolder>> Create();
  ~SpoolFolder();
  SpoolFolder(const SpoolFolder&) = delete;
  SpoolFolder& operator=(const SpoolFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  SpoolFolder(std::string path, UniqueFd lock);

  const std::string path_;
  const UniqueFd lock_;  ///< Of the folder, held by the living.
};

}  // namespace heddle::checkpoint
