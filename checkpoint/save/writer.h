/// \file
/// A worker's part of a save. Threads of the writer copy the worker's boxes into memory that is
/// kept between saves, then compress the copy and write one HDF5 file, or keep the chunks in
/// memory. A file is on storage (and was read back, if that is an object store) when the save
/// reports it. Training continues meanwhile. A thread must call BeforeChange before it changes the
/// state; it waits, or copies itself, if the copy has not got that far. That is the whole stall.
/// The coordinator collects the reports and commits (checkpoint/store/store.h); until then the save
/// has no effect.
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

struct MemoryShard;  // checkpoint/save/memory_shard.h

/// The metrics of a writer; null: not recorded.
struct WriterStats {
  metrics::Histogram* stall_seconds = nullptr;  ///< Time for which a save stopped its callers.
  metrics::Histogram* seconds = nullptr;        ///< Time from a snapshot until the save ends.
  metrics::Gauge* bytes = nullptr;              ///< Bytes stored by the newest save.
  metrics::Counter* failures = nullptr;         ///< Failed saves.
};
/// The metrics heddle_checkpoint_… of a worker's files.
WriterStats CheckpointFigures(metrics::Registry& metrics);

struct WriterOptions {
  /// The root of the job's checkpoints (checkpoint/storage/storage.h), which is created if it does
  /// not exist. Empty: all saves go into memory.
  std::string root;
  /// The worker's name; its file is NAME.gGENERATION.h5.
  std::string name;
  /// Threads that copy and compress, beside the one that writes. More threads end a save sooner and
  /// slow training more; one compresses about 1 GB/s.
  int codec_threads = 1;
  /// Niceness of the writer's threads, 0 to 19. With no idle core, 5 took a quarter of the steps
  /// beside a save (benchmarks/run background); values above 15 gain nothing.
  int niceness = 15;
  /// Bytes of the state, if known; Create calls Reserve with them.
  int64_t reserve_bytes = 0;
  /// The most bytes of a snapshot. A larger state is saved without a copy; Snapshot then returns
  /// only when everything is compressed.
  int64_t staging_limit_bytes = int64_t{64} << 30;
  /// Raw bytes of a chunk. With smaller chunks a reader of a slice decodes less; with larger ones
  /// there are fewer chunks.
  int64_t chunk_bytes = int64_t{1} << 20;
  /// Called by the encoding threads before they copy; for tests of the order of copies.
  std::function<void()> before_copy = {};
};

struct SaveRequest {
  int64_t step = 0;
  int64_t generation = 0;
  /// How long Snapshot may wait for the previous save; zero: not at all.
  Duration wait = Duration::zero();
  /// Whether Snapshot returns before the boxes are copied. Until FinishCopy, a box must be changed
  /// only after BeforeChange, and must not be freed.
  bool deferred = false;
  /// Destination of the chunks if they do not go into a file; its content and description are
  /// replaced. It belongs to the save until the save ends.
  std::shared_ptr<MemoryShard> memory = nullptr;
  /// For saves into memory: false keeps the elements uncompressed, so that the save is only a copy.
  bool compress = true;
  /// For saves into a file: false makes Snapshot return only when the save has ended, or give it up
  /// after kDirectTimeout, without a copy of the state.
  bool background = true;
};

struct SnapshotInfo {
  double stall_seconds = 0;  ///< Time for which the snapshot has stopped its callers so far.
  int64_t raw_bytes = 0;
};

/// Timeout of a save for which Snapshot waits.
inline constexpr Duration kDirectTimeout = std::chrono::minutes(10);

/// A worker's writer of saves. Thread: any; calls of Snapshot, BeforeChange and FinishCopy must not
/// overlap.
class Writer {
 public:
  /// Called once per save, on the writer's thread, with no locks held; it must not call the writer.
  /// SnapshotInfo::stall_seconds is final.
  using Done = std::function<void(const Result<FilePart>&, const SnapshotInfo&)>;

  /// Creates a writer and its threads. Errors: kInvalidArgument (options out of range), and those
  /// of creating the root.
  static Result<std::unique_ptr<Writer>> Create(WriterOptions options, const WriterStats& figures);
  /// Creates a writer with the metrics of CheckpointFigures.
  static Result<std::unique_ptr<Writer>> Create(WriterOptions options, metrics::Registry& metrics);
  /// Cancels the save in flight and waits for the threads, which end after their current system
  /// call.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Allocates and touches memory for snapshots of `bytes` in the background, so that the first one
  /// is copied as fast as later ones.
  void Reserve(int64_t bytes);

  /// Starts the save of `boxes`. Their memory may be changed or freed when this returns or, if
  /// deferred, after FinishCopy. Boxes are copied in their order, so boxes that change first should
  /// come first. A save into a file that is not in the background, or whose state exceeds the
  /// staging limit, is never deferred.
  /// Errors: kUnavailable        the previous save is still being written after `request.wait`
  ///         kInvalidArgument    a box whose bytes do not fit its extent, a repeated box, a step or
  ///                             generation out of range, a file without a root
  ///         kResourceExhausted  no memory for the copy
  ///         and, for a state above the staging limit or a save that is not in the background,
  ///         those of the save itself; `done` is called then, too.
  Result<SnapshotInfo> Snapshot(const SaveRequest& request,
                                std::span<const BoxView> boxes,
                                Done done = {});

  /// Returns when `memory` may be changed, because a deferred snapshot has copied it. Copies the
  /// parts that no thread has begun to copy. Cost without a pending copy: one load.
  void BeforeChange(std::span<const std::byte> memory);
  /// Returns when all memory of a deferred snapshot may be changed and freed; copies like
  /// BeforeChange.
  void FinishCopy();

  /// Waits for the newest save and returns its result. Errors: kDeadlineExceeded (it is still being
  /// written), kFailedPrecondition (there was none), kCancelled, kResourceExhausted (the disk is
  /// full), and other failures of writing.
  Result<FilePart> Wait(Deadline deadline);

  /// Gives up the save in flight, if any, and removes its file, because its generation is over. The
  /// boxes are not read any more when this returns, unless Snapshot is waiting for their save.
  void Cancel();

  /// Gives up saves of generations below `generation` for which Snapshot waits, now and later, so
  /// that a worker does not wait for its disk when the others have gone on without it. Thread: any.
  void Fence(int64_t generation);

  /// Whether a save is being written.
  bool busy() const;

 private:
  class Implementation;
  explicit Writer(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace heddle::checkpoint
