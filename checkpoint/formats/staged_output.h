/// \file
/// Output that is all or nothing: a file or a folder is written beside its place under a temporary
/// name, brought to storage and renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

namespace heddle::checkpoint {

/// A file or folder on its way to `path`. What was not committed is removed at the end of its life.
/// Thread: one caller at a time.
class StagedOutput {
 public:
  /// Clears the temporary sibling `.NAME.tmp-PID` of `path`; for a folder, makes it. The parent of
  /// `path` exists. Errors: kInvalidArgument for a path without a name; those of the file system.
  static Result<StagedOutput> File(const std::string& path);
  static Result<StagedOutput> Folder(const std::string& path);

  StagedOutput(StagedOutput&& other) noexcept;
  StagedOutput& operator=(StagedOutput&&) = delete;
  ~StagedOutput();

  /// The temporary name: the file to create, or the folder to fill with files.
  const std::string& temporary() const { return temporary_; }

  /// Every file is written and closed: syncs it all, renames it to its path and syncs the parent.
  /// What lies there is exchanged in the same rename and then removed with `replace`; without it,
  /// it stays, and the error is kAlreadyExists.
  Status Commit(bool replace);

 private:
  StagedOutput(std::string path, std::string temporary)
      : path_(std::move(path)),
        temporary_(std::move(temporary)) {}

  std::string path_;
  std::string temporary_;  ///< Empty: committed, or moved from.
};

/// A file being written from its beginning to its end, and patched behind it.
/// Thread: one caller at a time.
class OutputFile {
 public:
  /// Creates `path`, which does not exist.
  static Result<OutputFile> Create(const std::string& path);

  /// Errors: those of writing (kResourceExhausted: disk full); they name the file.
  Status Append(std::span<const std::byte> bytes);
  /// Writes over bytes that were appended.
  Status WriteAt(int64_t offset, std::span<const std::byte> bytes);
  /// How much was appended.
  int64_t bytes() const { return bytes_; }
  /// Nothing may follow. A network file system may report a failed write here.
  Status Close();

 private:
  OutputFile(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  UniqueFd fd_;
  std::string path_;
  int64_t bytes_ = 0;
};

}  // namespace heddle::checkpoint
