/// \file
/// The storage of checkpoints: one interface, and a folder for each kind of storage. The operations
/// on checkpoints (committing, choosing one to resume from, retention) are implemented once above
/// it (store.h).
///
///   local/  a folder of a local or shared file system: any path
///   s3/     an object store with the interface of Amazon S3: "s3://BUCKET/PREFIX"
///
/// A further kind is a folder that defines a Storage and a SourceFile and registers them, so that
/// linking it registers it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/files/file_access.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// The generation of imported checkpoints. It is below every generation that saves; no fence
/// refuses it.
inline constexpr int64_t kImportGeneration = 0;

/// The storage of one job's checkpoints, at its root. A writer writes its file into SaveFolder and
/// calls Persist; when all writers have, the coordinator calls Commit. Failures at any point leave the
/// committed checkpoints unchanged. Thread: any.
class Storage {
 public:
  using Cancelled = std::function<bool()>;

  virtual ~Storage() = default;

  /// Creates the root and everything else that saving needs. Called once before the other functions
  /// that write.
  virtual Status Prepare() = 0;
  /// The folder of a local file system in which the files of a save are written; it may not exist.
  virtual std::string SaveFolder(int64_t step, int64_t generation) const = 0;
  /// Makes `file`, which is complete and synced in the save's folder, durable, so that Commit finds
  /// it after any crash. Errors: kCancelled (`cancelled` returned true); kDataLoss (the stored
  /// bytes differ from those sent); kUnavailable, kDeadlineExceeded.
  virtual Status Persist(int64_t step,
                         int64_t generation,
                         const FileRecord& file,
                         const Cancelled& cancelled) const = 0;
  /// Commits the checkpoint of the manifest's step, whose files were kept; an existing one is
  /// replaced atomically. Returns its stored bytes, including the manifest. Errors: kAborted (a
  /// newer generation is known); kDataLoss (a file is missing or has another size).
  virtual Result<int64_t> Commit(Manifest manifest) const = 0;
  /// Implements checkpoint::Fence.
  virtual Status Fence(int64_t generation) const = 0;

  /// The highest generation of the fence, of checkpoints and of remains of saves; -1: there are
  /// none.
  virtual Result<int64_t> HighestGeneration() const = 0;
  /// The committed steps, ascending, without reading the checkpoints. Empty if there is no root.
  virtual Result<std::vector<int64_t>> Steps() const = 0;
  /// Changes the manifest of a committed step by `change` and replaces it atomically. Errors:
  /// kNotFound, kDataLoss, those of `change`.
  virtual Status ChangeManifest(int64_t step,
                                const std::function<Status(Manifest&)>& change) const = 0;
  /// Removes a committed checkpoint so that a partly removed one is never visible.
  virtual Status Remove(int64_t step) const = 0;
  /// Implements checkpoint::Abandon.
  virtual Status Abandon(int64_t step, int64_t generation) const = 0;
  /// Implements checkpoint::CleanOrphans.
  virtual Result<int> CleanOrphans(std::optional<int64_t> live_generation) const = 0;
};

/// A kind of storage.
struct StorageKind {
  /// Scheme of the URLs, "s3://"; empty: locations are paths of the file system.
  std::string scheme;
  /// The form of a location, for messages: "at s3://BUCKET/PREFIX".
  std::string place;
  std::function<Result<std::unique_ptr<Storage>>(const std::string& root)> open_storage;
  std::function<Result<std::unique_ptr<SourceFile>>(const std::string& path)> open_file;
};

/// Registers a kind for the life of the process; defined once per kind, at namespace scope. Aborts
/// if the scheme is registered already.
class StorageRegistration {
 public:
  explicit StorageRegistration(StorageKind kind);
};

/// The storage at `root`, which is not accessed yet. Errors: kInvalidArgument (a URL of an unknown
/// scheme, or settings of the scheme are missing).
Result<std::unique_ptr<Storage>> OpenStorage(const std::string& root);

/// Opens a file in any kind of storage, by its path or URL. Errors: kNotFound, kDataLoss (not a
/// file), and those of reaching it.
Result<std::unique_ptr<SourceFile>> OpenFile(const std::string& path);

/// Reads a whole file as text. Errors: those of OpenFile and of reading; kResourceExhausted (longer
/// than `most_bytes`).
Result<std::string> ReadText(const std::string& path, int64_t most_bytes);

/// Whether `path` is a URL, not a path of the file system.
bool IsUrl(std::string_view path);

/// The path or URL "FOLDER/NAME"; `folder` may end in slashes.
std::string JoinPath(const std::string& folder, std::string_view name);

/// Whether the error means that the store was not reached, so that it says nothing about the bytes.
bool IsUnreachable(const Status& status);

}  // namespace heddle::checkpoint
