#include "checkpoint/convert/identity.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <sys/stat.h>

#include "checkpoint/storage/storage.h"

namespace heddle::checkpoint {

Result<std::string> FileFingerprint(const std::string& path) {
  if (IsUrl(path)) {  // A native checkpoint: its manifest has the hashes of all.
    HEDDLE_ASSIGN_OR_RETURN(const auto manifest, OpenFile(JoinPath(path, kManifestName)));
    HEDDLE_ASSIGN_OR_RETURN(const std::string hash, HashFile(*manifest));
    return fmt::format("{} {}\n", manifest->name(), hash);
  }
  std::error_code error;
  std::vector<std::string> files;
  if (std::filesystem::is_directory(path, error)) {
    std::filesystem::directory_iterator entry(path, error);
    for (const std::filesystem::directory_iterator end; !error && entry != end;
         entry.increment(error)) {
      files.push_back(entry->path().string());
    }
    if (error) {
      return ErrnoError(error.value(), "list " + path);
    }
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(path);
  }
  std::string fingerprint;
  for (const std::string& file : files) {
    struct stat found {};
    if (::stat(file.c_str(), &found) != 0) {
      return ErrnoError(errno, "stat " + file);
    }
    // The time of change is set by the kernel; no program can set it back.
    fingerprint += fmt::format("{} {} {} {}.{} {}.{}\n", file, found.st_size, found.st_ino,
                               found.st_mtim.tv_sec, found.st_mtim.tv_nsec, found.st_ctim.tv_sec,
                               found.st_ctim.tv_nsec);
  }
  return fingerprint;
}

}  // namespace heddle::checkpoint
