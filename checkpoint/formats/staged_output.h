/// \file
/// Output that is all or nothing, and that survives being cut: a file or a folder is written beside
/// its place, brought to storage and renamed.
///
///     .NAME.tmp/output            the file, or the folder with files
///     .NAME.tmp/finished-N.json   what attempt it is, and the size and hash of its N-th file
///
/// The folder .NAME.tmp is locked while its process lives. What a dead process left in it is gone
/// on with when the next one makes the same attempt, and removed by it else.
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

/// What is being written, so that a later process can tell whether it does the same.
struct Attempt {
  /// A hash of everything that decides the bytes. Empty: nothing is kept for a later process.
  std::string identity;
  /// The files of the folder that can be finished apart, in the order in which they will be.
  std::vector<std::string> files;
};

/// A file of an attempt that is whole and on storage.
struct FinishedFile {
  FileRecord file;
  std::string detail;  ///< The writer's own, as given to Record.
};

/// A file or folder on its way to `path`. What was not committed is removed at the end of its life;
/// a process that is killed leaves it. Thread: one caller at a time.
class StagedOutput {
 public:
  /// Locks and clears `.NAME.tmp`; for a folder, makes `output` in it, or keeps the files of it
  /// that an attempt of the same identity finished and whose bytes still have their hashes. The
  /// parent of `path` exists. Errors: kInvalidArgument for a path without a name; kUnavailable when
  /// another process is writing to `path`; those of the file system.
  static Result<StagedOutput> File(const std::string& path);
  static Result<StagedOutput> Folder(const std::string& path, Attempt attempt);

  StagedOutput(StagedOutput&& other) noexcept = default;
  StagedOutput& operator=(StagedOutput&&) = delete;
  ~StagedOutput();

  /// The temporary name: the file to create, or the folder to fill with files.
  const std::string& temporary() const { return temporary_; }

  /// Files that need not be written again: the first of the attempt's.
  const std::vector<FinishedFile>& finished() const { return finished_; }
  /// Only the first `count` of them are good after all: removes the others.
  Status Keep(size_t count);
  /// What became of an earlier attempt, as one line for the user; empty when there was none.
  const std::string& history() const { return history_; }

  /// The next of the attempt's files is complete and closed: remembers it, with both on storage. Of
  /// an attempt without identity nothing is kept.
  Status Record(FileRecord file, std::string detail);

  /// Every file is written and closed: syncs it all, renames it to its path and syncs the parent.
  /// What lies there is exchanged in the same rename and then removed with `replace`; without it,
  /// it stays, and the error is kAlreadyExists.
  Status Commit(bool replace);

 private:
  static Result<StagedOutput> Lock(const std::string& path);
  StagedOutput(std::string path, std::string holder, UniqueFd lock);
  std::string RecordPath(size_t number) const;
  void LoadFinished();

  std::string path_;
  std::string holder_;  ///< .NAME.tmp
  std::string temporary_;
  UniqueFd lock_;  ///< Of the holder; invalid when moved from.
  Attempt attempt_;
  std::vector<FinishedFile> finished_;
  std::string history_;
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
