/// \file
/// A worker's side of a save. Snapshot copies the worker's boxes into memory that is kept between
/// saves (that copy is the whole stall of training); threads of the writer then compress the copy
/// and write one HDF5 file, which is on storage when the save reports it. The coordinator collects
/// the reports and commits (checkpoint/store.h): until then nothing of the save counts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "checkpoint/types.h"
#include "metrics/registry.h"

namespace heddle::checkpoint {

struct WriterOptions {
  /// The folder that holds the job's checkpoints; created when missing.
  std::string root;
  /// The worker's name: its file is NAME.gGENERATION.h5.
  std::string name;
  /// Threads that compress beside the one that writes. More end a save sooner and take more from
  /// training; one does about 1 GB/s.
  int codec_threads = 1;
  /// Niceness of the writer's threads, 0 to 19.
  int niceness = 5;
  /// Bytes of the state, when known: the memory is touched at Create, so that the first save does
  /// not stall longer than later ones.
  int64_t reserve_bytes = 0;
  /// Most bytes of a snapshot. A larger state is saved without a copy: Snapshot then returns only
  /// once everything is compressed.
  int64_t staging_limit_bytes = int64_t{64} << 30;
  /// Raw bytes of a chunk. Smaller: a reader of a slice decodes less; larger: fewer chunks.
  int64_t chunk_bytes = int64_t{1} << 20;
};

struct SaveRequest {
  int64_t step = 0;
  int64_t generation = 0;
  /// How long Snapshot may wait for the save before it; zero refuses at once.
  Duration wait = Duration::zero();
};

struct SnapshotInfo {
  double stall_seconds = 0;
  int64_t raw_bytes = 0;
};

/// Thread: any; calls of Snapshot exclude each other.
class Writer {
 public:
  /// Called once a save, on the writer's thread, without locks held; it may not call the writer.
  using Done = std::function<void(const Result<FilePart>&)>;

  /// Errors: kInvalidArgument for options out of range, and those of creating the folder.
  static Result<std::unique_ptr<Writer>> Create(WriterOptions options, metrics::Registry& metrics);
  /// Cancels the save in flight and waits for the threads: at most for one system call of theirs.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Starts the save of `boxes`. Their memory is free again when this returns.
  /// Errors: kUnavailable        the save before is still being written (after `request.wait`)
  ///         kInvalidArgument    a box whose bytes do not fit its extent, twice the same box, a bad
  ///         step kResourceExhausted  no memory for the copy and, for a state above the staging
  ///         limit, those of the save itself; `done` is called then too.
  Result<SnapshotInfo> Snapshot(const SaveRequest& request,
                                std::span<const BoxView> boxes,
                                Done done = {});

  /// The outcome of the newest save. Errors: kDeadlineExceeded while it is still being written,
  /// kFailedPrecondition when there was none, kCancelled when it was cancelled, kResourceExhausted
  /// when the disk is full, and other failures of writing.
  Result<FilePart> Wait(Deadline deadline);

  /// Gives up the save in flight, if any, and removes its file: its generation is over.
  void Cancel();

  /// Whether a save is being written.
  bool busy() const;

 private:
  class Implementation;
  explicit Writer(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace heddle::checkpoint
