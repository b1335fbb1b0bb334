/// \file
/// The implementation of a writer, for writer.cc (its calls) and writer_threads.cc (its threads)
/// only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "checkpoint/files/chunk_sink.h"
#include "checkpoint/files/staging.h"
#include "checkpoint/save/deferred_copy.h"
#include "checkpoint/save/encode_window.h"
#include "checkpoint/save/save_tasks.h"
#include "checkpoint/save/writer.h"
#include "checkpoint/storage/storage.h"

namespace heddle::checkpoint {

/// Handles one save at a time: the caller that sets `claim_` owns the staging memory and passes it
/// with `save_` to the threads. Codec threads take the save's tasks in order, once all boxes are
/// copied (for a raw save: once the task's box is). The writing thread writes the encoded chunks to
/// the file in the same order and ends the save.
class Writer::Implementation {
 public:
  Implementation(WriterOptions options,
                 std::unique_ptr<Storage> storage,
                 const WriterStats& figures);
  ~Implementation();

  void Reserve(int64_t bytes) HEDDLE_EXCLUDES(mutex_);
  Result<SnapshotInfo> Snapshot(const SaveRequest& request,
                                std::span<const BoxView> boxes,
                                Done done);
  void BeforeChange(std::span<const std::byte> memory) HEDDLE_EXCLUDES(mutex_);
  void FinishCopy() HEDDLE_EXCLUDES(mutex_);
  Result<FilePart> Wait(Deadline deadline) HEDDLE_EXCLUDES(mutex_);
  void Cancel() HEDDLE_EXCLUDES(mutex_);
  void Fence(int64_t generation) HEDDLE_EXCLUDES(mutex_);
  bool busy() const HEDDLE_EXCLUDES(mutex_);

 private:
  enum class Claim : uint8_t {
    kNone,
    kGrow,  ///< Claimed while the staging memory grows.
    kSave,  ///< Claimed from the beginning of Snapshot to the end of the save.
  };

  Status AwaitClaim(const SaveRequest& request) HEDDLE_EXCLUDES(mutex_);
  /// Counts a save that failed before the threads had it. Returns `status`.
  Status Failed(Status status) const;
  Status WaitUntilRead(bool ended) HEDDLE_EXCLUDES(mutex_);
  bool EnterCopy() HEDDLE_EXCLUDES(mutex_);
  void LeaveCopy(Time begun) HEDDLE_EXCLUDES(mutex_);
  bool CanGrow() const HEDDLE_REQUIRES(mutex_);
  void Grow() HEDDLE_EXCLUDES(mutex_);
  void EncodeLoop() HEDDLE_EXCLUDES(mutex_);
  void WriteLoop() HEDDLE_EXCLUDES(mutex_);
  void Run(const Save& save) HEDDLE_EXCLUDES(mutex_);
  Result<FilePart> WriteFile(const Save& save) HEDDLE_EXCLUDES(mutex_);
  Result<FilePart> WriteMemory(const Save& save) HEDDLE_EXCLUDES(mutex_);
  Result<FilePart> WriteItems(const Save& save, ChunkSink& sink) HEDDLE_EXCLUDES(mutex_);
  Status WriteItem(const Save& save, const SaveItem& item, ChunkSink& sink, BoxRecord& record)
      HEDDLE_EXCLUDES(mutex_);

  /// Bound of every wait; loops then check again.
  static constexpr Duration kPoll = std::chrono::seconds(1);

  // Constant after construction.
  const WriterOptions options_;
  const std::unique_ptr<Storage> storage_;  ///< Null: all saves go into memory.
  const WriterStats figures_;

  // Owned by the holder of the claim: Snapshot, then the threads until the save ends.
  StagingBuffer staging_;
  DeferredCopy copy_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool stop_ HEDDLE_GUARDED_BY(mutex_) = false;
  Claim claim_ HEDDLE_GUARDED_BY(mutex_) = Claim::kNone;
  bool cancelled_ HEDDLE_GUARDED_BY(mutex_) = false;
  int64_t fence_ HEDDLE_GUARDED_BY(mutex_) = 0;  ///< Snapshot does not wait for generations below.
  std::shared_ptr<Save> save_
      HEDDLE_GUARDED_BY(mutex_);  ///< Shared with the threads that work on it.
  std::optional<Result<FilePart>> outcome_ HEDDLE_GUARDED_BY(mutex_);
  EncodeWindow window_ HEDDLE_GUARDED_BY(mutex_);  ///< Progress of save_'s tasks.
  /// A slot belongs to the thread that took its task until it is ready, then to the writing thread.
  std::array<Encoded, EncodeWindow::kSlots> slots_;
  int64_t callers_ HEDDLE_GUARDED_BY(mutex_) = 0;  ///< Number of callers stopped by the copy.
  Duration stall_ HEDDLE_GUARDED_BY(mutex_) = {};  ///< Time for which this save stopped callers.
  int64_t reserve_ HEDDLE_GUARDED_BY(mutex_) = 0;  ///< Bytes of staging memory wanted.
  int64_t staged_ HEDDLE_GUARDED_BY(mutex_) = 0;   ///< Bytes of staging memory already requested.

  std::vector<Thread> threads_;  ///< Declared last, because they use all other members.
};

}  // namespace heddle::checkpoint
