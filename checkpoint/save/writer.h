/// \file
/// A worker's side of a save. Threads of the writer copy the worker's boxes into memory that is
/// kept between saves, then compress the copy and write one HDF5 file, which is on storage (and
/// read back, where that is an object store) when the save reports it, or keep it in memory.
/// Training goes on beside all of it; only who changes the state says so first (BeforeChange), and
/// waits or copies where the copy is not that far: that is the whole stall. The coordinator
/// collects the reports and commits (checkpoint/store/store.h): until then nothing of the save
/// counts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "checkpoint/format/types.h"
#include "metrics/registry.h"

namespace heddle::checkpoint {

struct MemoryPart;  // checkpoint/save/memory_part.h

/// What a writer counts; null: not counted.
struct WriterFigures {
  metrics::Histogram* stall_seconds = nullptr;  ///< For which a save stopped its caller.
  metrics::Histogram* seconds = nullptr;        ///< From a snapshot until the save is complete.
  metrics::Gauge* bytes = nullptr;              ///< Stored by the newest save.
  metrics::Counter* failures = nullptr;
};
/// heddle_checkpoint_…: of a worker's files.
WriterFigures CheckpointFigures(metrics::Registry& metrics);

struct WriterOptions {
  /// Where the job's checkpoints lie (checkpoint/storage/storage.h); made when missing. Empty: all
  /// saves go into memory.
  std::string root;
  /// The worker's name: its file is NAME.gGENERATION.h5.
  std::string name;
  /// Threads that copy and compress beside the one that writes. More end a save sooner and take
  /// more from training; one compresses about 1 GB/s.
  int codec_threads = 1;
  /// Niceness of the writer's threads, 0 to 19. With no idle core, 5 took a quarter of the steps
  /// beside a save (benchmarks/run background); beyond 15 nothing is gained.
  int niceness = 15;
  /// Bytes of the state, when known: as Reserve, at Create.
  int64_t reserve_bytes = 0;
  /// Most bytes of a snapshot. A larger state is saved without a copy: Snapshot then returns only
  /// once everything is compressed.
  int64_t staging_limit_bytes = int64_t{64} << 30;
  /// Raw bytes of a chunk. Smaller: a reader of a slice decodes less; larger: fewer chunks.
  int64_t chunk_bytes = int64_t{1} << 20;
  /// Called by those threads before they copy: tests decide with it who comes first.
  std::function<void()> before_copy = {};
};

struct SaveRequest {
  int64_t step = 0;
  int64_t generation = 0;
  /// How long Snapshot may wait for the save before it; zero refuses at once.
  Duration wait = Duration::zero();
  /// Snapshot returns before the boxes are copied. Until FinishCopy they are changed only after
  /// BeforeChange, and not freed.
  bool deferred = false;
  /// Where the chunks go, when not into a file: content and description are replaced. The save's,
  /// until it is complete.
  std::shared_ptr<MemoryPart> memory = nullptr;
  /// In memory: false leaves the elements as they are, so that the copy of the state is all.
  bool compress = true;
  /// False, of a file: Snapshot returns only once the save has ended (after kDirectTimeout: is
  /// given up), and copies nothing.
  bool background = true;
};

struct SnapshotInfo {
  double stall_seconds = 0;  ///< For which the snapshot stopped its caller, up to now.
  int64_t raw_bytes = 0;
};

/// How long a save may take for which Snapshot waits.
inline constexpr Duration kDirectTimeout = std::chrono::minutes(10);

/// Thread: any; calls of Snapshot, BeforeChange and FinishCopy exclude each other.
class Writer {
 public:
  /// Called once a save, on the writer's thread, without locks held; it may not call the writer.
  /// The stall is complete then.
  using Done = std::function<void(const Result<FilePart>&, const SnapshotInfo&)>;

  /// Errors: kInvalidArgument for options out of range, and those of creating the folder.
  static Result<std::unique_ptr<Writer>> Create(WriterOptions options,
                                                const WriterFigures& figures);
  /// With CheckpointFigures.
  static Result<std::unique_ptr<Writer>> Create(WriterOptions options, metrics::Registry& metrics);
  /// Cancels the save in flight and waits for the threads: at most for one system call of theirs.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Touches memory for snapshots of `bytes` in the background, so that the first one is copied as
  /// fast as later ones.
  void Reserve(int64_t bytes);

  /// Starts the save of `boxes`. Their memory is free again when this returns, or, deferred, after
  /// FinishCopy; they are copied in their order, so those that change first come first. What is not
  /// saved in the background, or is above the staging limit, is never deferred, unless it goes into
  /// memory.
  /// Errors: kUnavailable        the save before is still being written (after `request.wait`)
  ///         kInvalidArgument    a box whose bytes do not fit its extent, twice the same box, a bad
  ///         step, a file without a root kResourceExhausted  no memory for the copy and, for a
  ///         state above the staging limit or a save that is not in the background, those of the
  ///         save itself; `done` is called then too.
  Result<SnapshotInfo> Snapshot(const SaveRequest& request,
                                std::span<const BoxView> boxes,
                                Done done = {});

  /// Returns once `memory` may be changed: nobody reads it any more for a deferred snapshot. Copies
  /// itself what nobody has begun to copy. Cost with no copy pending: one load.
  void BeforeChange(std::span<const std::byte> memory);
  /// The same for all of the snapshot.
  void FinishCopy();

  /// The outcome of the newest save. Errors: kDeadlineExceeded while it is still being written,
  /// kFailedPrecondition when there was none, kCancelled when it was cancelled, kResourceExhausted
  /// when the disk is full, and other failures of writing.
  Result<FilePart> Wait(Deadline deadline);

  /// Gives up the save in flight, if any, and removes its file: its generation is over. The boxes
  /// are not read any more when this returns, unless Snapshot itself waits for them.
  void Cancel();

  /// Gives up saves of generations below this one for which Snapshot waits, now and later: nobody
  /// waits for the disk when the others have gone on without this worker. Thread: any.
  void Fence(int64_t generation);

  /// Whether a save is being written.
  bool busy() const;

 private:
  class Implementation;
  explicit Writer(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace heddle::checkpoint
