/// \file
/// Where checkpoints lie: one interface, a room for each kind of place. What a checkpoint's life is
/// (committing, choosing what to resume from, retention) is written once above it (store.h).
///
///   local/  a folder of a local or shared file system: any path
///   s3/     an object store with the interface of Amazon S3: "s3://BUCKET/PREFIX"
///
/// A further kind is a room that defines a Storage and a SourceFile and registers them: being
/// linked is being registered.
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

/// The generation of what is brought in from elsewhere: below every one that saves; no fence keeps
/// it out.
inline constexpr int64_t kImportGeneration = 0;

/// The place of one job's checkpoints, its root. A writer puts its file into SaveFolder and calls
/// Keep; the coordinator, once all have, calls Commit. Whatever fails or dies on the way, the
/// committed checkpoints stay as they were. Thread: any.
class Storage {
 public:
  using Cancelled = std::function<bool()>;

  virtual ~Storage() = default;

  /// Called once before the others that write: the root and what else saving needs are made.
  virtual Status Prepare() = 0;
  /// The folder of a local file system in which the files of a save are written; it may not exist.
  virtual std::string SaveFolder(int64_t step, int64_t generation) const = 0;
  /// `file`, which is finished in the save's folder and synced there, will be found by Commit
  /// whatever crashes. It is given up when `cancelled`. Errors: kCancelled; kDataLoss when what
  /// arrived is not what was sent; kUnavailable, kDeadlineExceeded.
  virtual Status Keep(int64_t step,
                      int64_t generation,
                      const FileRecord& file,
                      const Cancelled& cancelled) const = 0;
  /// Makes the checkpoint of the manifest's step exist, whose files were kept; one that is there is
  /// replaced at once. Returns its stored bytes, the manifest included. Errors: kAborted when a
  /// newer generation is known; kDataLoss when a file is missing or has another size.
  virtual Result<int64_t> Commit(Manifest manifest) const = 0;
  /// As checkpoint::Fence.
  virtual Status Fence(int64_t generation) const = 0;

  /// The highest generation that anything here is of: the fence, checkpoints, what saves left; -1
  /// without any.
  virtual Result<int64_t> HighestGeneration() const = 0;
  /// The committed steps, ascending, without a look into them. None when there is no root.
  virtual Result<std::vector<int64_t>> Steps() const = 0;
  /// Replaces the manifest of a committed step, at once, by what `change` makes of it. Errors:
  /// kNotFound, kDataLoss, those of `change`.
  virtual Status ChangeManifest(int64_t step,
                                const std::function<Status(Manifest&)>& change) const = 0;
  /// Removes a committed checkpoint so that nobody ever sees half of it.
  virtual Status Remove(int64_t step) const = 0;
  /// As checkpoint::Abandon.
  virtual Status Abandon(int64_t step, int64_t generation) const = 0;
  /// As checkpoint::CleanOrphans.
  virtual Result<int> CleanOrphans(std::optional<int64_t> live_generation) const = 0;
};

/// A kind of place.
struct StorageKind {
  /// Of its URLs, "s3://"; empty: its places are paths of the file system.
  std::string scheme;
  /// How its places are written, for messages: "at s3://BUCKET/PREFIX".
  std::string place;
  std::function<Result<std::unique_ptr<Storage>>(const std::string& root)> open_storage;
  std::function<Result<std::unique_ptr<SourceFile>>(const std::string& path)> open_file;
};

/// Adds a kind for the life of the process; one a room, at namespace scope. A scheme that is there
/// already aborts.
class StorageRegistration {
 public:
  explicit StorageRegistration(StorageKind kind);
};

/// The storage at `root`; nothing is made or asked yet. Errors: kInvalidArgument for a URL of no
/// known scheme, or when what the scheme needs is not set.
Result<std::unique_ptr<Storage>> OpenStorage(const std::string& root);

/// A file in any kind of place, by its path or URL. Errors: kNotFound, kDataLoss when it is no
/// file, and those of reaching it.
Result<std::unique_ptr<SourceFile>> OpenFile(const std::string& path);

/// The whole of it as text. Errors: as OpenFile; kResourceExhausted above `most_bytes`.
Result<std::string> ReadText(const std::string& path, int64_t most_bytes);

/// Whether `path` is a URL, not a path of the file system.
bool IsUrl(std::string_view path);

/// "FOLDER/NAME", for a path or a URL that may end in slashes.
std::string JoinPath(const std::string& folder, std::string_view name);

/// Whether the error says nothing about the bytes: the store did not give them.
bool IsUnreachable(const Status& status);

}  // namespace heddle::checkpoint
