/// \file
/// Output that appears completely or not at all, and that can be resumed: a file or a folder is
/// written beside its final path, synced and renamed.
///
///     .NAME.tmp/output            the file, or the folder with files
///     .NAME.tmp/finished-N.json   the attempt's identity, and the size and hash of its N-th file
///
/// The folder .NAME.tmp is locked while its process lives. The next process resumes from the files
/// that a dead process left there if it makes the same attempt, and removes them otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/system/unique_fd.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// The identity of an attempt to write a folder, by which a later process recognises it.
struct Attempt {
  /// A hash of everything that determines the bytes. Empty: nothing is kept for a later process.
  std::string identity;
  /// The files of the folder that are finished one by one, in that order.
  std::vector<std::string> files;
};

/// A file of an attempt that is complete and on storage.
struct FinishedFile {
  FileRecord file;
  std::string detail;  ///< Text of the writer, as passed to Record.
};

/// A file or folder that is being written and renamed to its path by Commit. The destructor removes
/// output that was not committed; a killed process leaves it. Thread: one caller at a time.
class StagedOutput {
 public:
  /// Begins a file: locks and clears `.NAME.tmp`. The parent of `path` exists. Errors:
  /// kInvalidArgument (a path without a name), kUnavailable (another process is writing to `path`),
  /// those of the file system.
  static Result<StagedOutput> File(const std::string& path);
  /// Begins a folder: locks `.NAME.tmp` and makes `output` in it. Keeps the files there that an
  /// attempt of the same identity finished and whose hashes still match, and removes all others.
  /// Errors: those of File.
  static Result<StagedOutput> Folder(const std::string& path, Attempt attempt);

  StagedOutput(StagedOutput&& other) noexcept = default;
  StagedOutput& operator=(StagedOutput&&) = delete;
  ~StagedOutput();

  /// The temporary name: the file to create, or the folder to fill with files.
  const std::string& temporary() const { return temporary_; }

  /// The first files of the attempt that are finished and need not be written again.
  const std::vector<FinishedFile>& finished() const { return finished_; }
  /// Keeps only the first `count` finished files and removes the others.
  Status Keep(size_t count);
  /// A line for the user on whether an earlier attempt is resumed; empty: there was none.
  const std::string& history() const { return history_; }

  /// Records that the attempt's next file is complete and closed; syncs the file and the record. No
  /// effect for an attempt without identity.
  Status Record(FileRecord file, std::string detail);

  /// Syncs all files, which are closed, renames the output to its path and syncs the parent. With
  /// `replace`, existing output is exchanged in the same rename and then removed; without it, it
  /// stays and the error is kAlreadyExists.
  Status Commit(bool replace);

 private:
  static Result<StagedOutput> Lock(const std::string& path);
  StagedOutput(std::string path, std::string holder, UniqueFd lock);
  std::string RecordPath(size_t number) const;
  void LoadFinished();

  std::string path_;
  std::string holder_;  ///< .NAME.tmp
  std::string temporary_;
  UniqueFd lock_;  ///< Lock of the folder holder_; invalid after a move.
  Attempt attempt_;
  std::vector<FinishedFile> finished_;
  std::string history_;
};

/// A file that is written from its beginning to its end; bytes written before may be overwritten.
/// Thread: one caller at a time.
class OutputFile {
 public:
  /// Creates `path`, which must not exist.
  static Result<OutputFile> Create(const std::string& path);

  /// Appends bytes. Errors: those of writing (kResourceExhausted: disk full), which name the file.
  Status Append(std::span<const std::byte> bytes);
  /// Overwrites bytes that were appended before. Errors: those of Append.
  Status WriteAt(int64_t offset, std::span<const std::byte> bytes);
  /// Number of bytes appended so far.
  int64_t bytes() const { return bytes_; }
  /// Closes the file; no call may follow. A network file system may report a failed write here.
  Status Close();

 private:
  OutputFile(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  UniqueFd fd_;
  std::string path_;
  int64_t bytes_ = 0;
};

}  // namespace heddle::checkpoint
