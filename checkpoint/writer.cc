#include "checkpoint/writer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mutex.h"
#include "checkpoint/file_access.h"
#include "checkpoint/hdf5_file.h"
#include "checkpoint/layout.h"
#include "checkpoint/save_tasks.h"
#include "checkpoint/staging.h"

namespace heddle::checkpoint {

namespace {

/// Compressed chunks that may wait for the disk: bounds memory, and how far threads run ahead.
constexpr int64_t kWindow = 16;
constexpr Duration kPoll = std::chrono::seconds(1);  // Every wait has a bound; loops check again.
constexpr Duration kDirectTimeout = std::chrono::minutes(10);

}  // namespace

class Writer::Implementation {
 public:
  Implementation(WriterOptions options, metrics::Registry& metrics);
  ~Implementation();

  StagingBuffer& staging() { return staging_; }
  Result<SnapshotInfo> Snapshot(const SaveRequest& request,
                                std::span<const BoxView> boxes,
                                Done done);
  Result<FilePart> Wait(Deadline deadline) HEDDLE_EXCLUDES(mutex_);
  void Cancel() HEDDLE_EXCLUDES(mutex_);
  bool busy() const HEDDLE_EXCLUDES(mutex_);

 private:
  Status Claim(const SaveRequest& request) HEDDLE_EXCLUDES(mutex_);
  Status WaitUntilEncoded() HEDDLE_EXCLUDES(mutex_);
  bool CanEncode() const HEDDLE_REQUIRES(mutex_);
  void EncodeLoop() HEDDLE_EXCLUDES(mutex_);
  void WriteLoop() HEDDLE_EXCLUDES(mutex_);
  void Run(const Save& save) HEDDLE_EXCLUDES(mutex_);
  Result<FilePart> WriteFile(const Save& save) HEDDLE_EXCLUDES(mutex_);
  Status WriteItem(const Save& save, const SaveItem& item, Hdf5File& file, BoxRecord& record)
      HEDDLE_EXCLUDES(mutex_);
  void LowerPriority() const;

  // Constant after construction.
  const WriterOptions options_;
  metrics::Histogram& stall_seconds_;
  metrics::Histogram& seconds_;
  metrics::Gauge& bytes_;
  metrics::Counter& failures_;

  // Owned by whoever holds the claim: Snapshot, then the threads until the save ends.
  StagingBuffer staging_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool stop_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool claimed_ HEDDLE_GUARDED_BY(mutex_) = false;  ///< From Snapshot's begin to the save's end.
  bool cancelled_ HEDDLE_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Save> save_
      HEDDLE_GUARDED_BY(mutex_);  ///< Shared with the threads that work on it.
  std::optional<Result<FilePart>> outcome_ HEDDLE_GUARDED_BY(mutex_);
  int64_t next_ HEDDLE_GUARDED_BY(mutex_) = 0;     ///< First task that no thread has taken.
  int64_t encoded_ HEDDLE_GUARDED_BY(mutex_) = 0;  ///< Tasks encoded.
  int64_t written_ HEDDLE_GUARDED_BY(mutex_) = 0;  ///< Tasks written: task t uses slot t % kWindow.
  int64_t active_ HEDDLE_GUARDED_BY(mutex_) = 0;   ///< Threads inside EncodeTask.
  std::array<bool, kWindow> ready_ HEDDLE_GUARDED_BY(mutex_) = {};
  /// A slot belongs to the thread that took its task until `ready_`, then to the writing thread.
  std::array<Encoded, kWindow> slots_;

  std::vector<std::thread> threads_;
};

Writer::Implementation::Implementation(WriterOptions options, metrics::Registry& metrics)
    : options_(std::move(options)),
      stall_seconds_(metrics.GetHistogram("heddle_checkpoint_stall_seconds",
                                          "Time for which a snapshot stopped training.",
                                          {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10})),
      seconds_(metrics.GetHistogram("heddle_checkpoint_seconds",
                                    "Time from a snapshot until its file is on storage.",
                                    {0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300})),
      bytes_(metrics.GetGauge(
          "heddle_checkpoint_bytes", "Stored bytes of the newest save.", {{"scope", "worker"}})),
      failures_(metrics.GetCounter(
          "heddle_checkpoint_failures_total", "Saves that failed.", {{"scope", "worker"}})) {
  threads_.emplace_back([this] { WriteLoop(); });
  for (int i = 0; i < options_.codec_threads; ++i) {
    threads_.emplace_back([this] { EncodeLoop(); });
  }
}

Writer::Implementation::~Implementation() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    cancelled_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void Writer::Implementation::LowerPriority() const {
  // Linux sets the niceness of a thread by its id; a refusal leaves the thread as it is.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), options_.niceness);
}

Status Writer::Implementation::Claim(const SaveRequest& request) {
  if (request.step < 0 || request.step >= 100'000'000 || request.generation < 0) {
    return InvalidArgumentError("save of step {} in generation {}", request.step,
                                request.generation);
  }
  const Deadline deadline = After(request.wait);
  const MutexLock lock(mutex_);
  while (claimed_) {
    if (!changed_.WaitUntil(mutex_, deadline) && claimed_) {
      return UnavailableError("step {} is not saved: the save before it is still being written",
                              request.step);
    }
  }
  claimed_ = true;
  cancelled_ = false;
  return Status::Ok();
}

Result<SnapshotInfo> Writer::Implementation::Snapshot(const SaveRequest& request,
                                                      std::span<const BoxView> boxes,
                                                      Done done) {
  const Time start = Now();
  HEDDLE_ASSIGN_OR_RETURN(const int64_t staging_bytes, StagingBytes(boxes));
  HEDDLE_RETURN_IF_ERROR(Claim(request));
  const bool direct = staging_bytes > options_.staging_limit_bytes;
  Status status = direct ? Status::Ok() : staging_.Reserve(staging_bytes);
  Result<std::shared_ptr<Save>> save = status;
  if (status.ok()) {
    save = PrepareSave(options_, request, boxes, direct ? nullptr : staging_.data());
    status = save.status();
  }
  SnapshotInfo info;
  {
    const MutexLock lock(mutex_);
    if (!status.ok()) {
      claimed_ = false;
      changed_.NotifyAll();
      return status;
    }
    info.raw_bytes = (*save)->raw_bytes;
    (*save)->started = start;
    (*save)->done = std::move(done);
    next_ = encoded_ = written_ = 0;
    ready_.fill(false);
    outcome_.reset();
    save_ = *std::move(save);
    changed_.NotifyAll();
  }
  if (direct) {
    HEDDLE_RETURN_IF_ERROR(WaitUntilEncoded());
  }
  info.stall_seconds = Seconds(Now() - start);
  stall_seconds_.Observe(info.stall_seconds);
  return info;
}

Status Writer::Implementation::WaitUntilEncoded() {
  const Deadline deadline = After(kDirectTimeout);
  const MutexLock lock(mutex_);
  const auto tasks = save_ ? save_->tasks() : 0;
  while (save_ && encoded_ < tasks) {
    changed_.WaitUntil(mutex_, std::min(deadline, After(kPoll)));
    if (Now() >= deadline && encoded_ < tasks) {
      cancelled_ = true;
      changed_.NotifyAll();
      // The caller's memory is read until the threads have finished the chunk they are at.
      while (active_ > 0) {
        changed_.WaitUntil(mutex_, After(kPoll));
      }
      return DeadlineExceededError("the disk took more than {} s", Seconds(kDirectTimeout));
    }
  }
  return outcome_ && !outcome_->ok() ? outcome_->status() : Status::Ok();
}

Result<FilePart> Writer::Implementation::Wait(Deadline deadline) {
  const MutexLock lock(mutex_);
  while (claimed_) {
    if (!changed_.WaitUntil(mutex_, deadline) && claimed_) {
      return DeadlineExceededError("the save is still being written");
    }
  }
  if (!outcome_) {
    return FailedPreconditionError("there was no save");
  }
  return *outcome_;
}

void Writer::Implementation::Cancel() {
  const MutexLock lock(mutex_);
  cancelled_ = cancelled_ || save_ != nullptr;
  changed_.NotifyAll();
}

bool Writer::Implementation::busy() const {
  const MutexLock lock(mutex_);
  return claimed_;
}

bool Writer::Implementation::CanEncode() const {
  return save_ && !cancelled_ && next_ < save_->tasks() && next_ < written_ + kWindow;
}

void Writer::Implementation::EncodeLoop() {
  LowerPriority();
  ChunkEncoder encoder;
  std::vector<std::byte> tile;
  for (;;) {
    std::shared_ptr<Save> save;
    int64_t task = 0;
    {
      const MutexLock lock(mutex_);
      while (!stop_ && !CanEncode()) {
        changed_.WaitUntil(mutex_, After(kPoll));
      }
      if (stop_) {
        return;
      }
      save = save_;
      task = next_++;
      ++active_;
    }
    EncodeTask(*save, task, encoder, tile, slots_[static_cast<size_t>(task % kWindow)]);
    const MutexLock lock(mutex_);
    ready_[static_cast<size_t>(task % kWindow)] = true;
    ++encoded_;
    --active_;
    changed_.NotifyAll();
  }
}

void Writer::Implementation::WriteLoop() {
  LowerPriority();
  for (;;) {
    std::shared_ptr<Save> save;
    {
      const MutexLock lock(mutex_);
      while (!stop_ && !save_) {
        changed_.WaitUntil(mutex_, After(kPoll));
      }
      if (!save_) {
        return;
      }
      save = save_;
    }
    Run(*save);
  }
}

void Writer::Implementation::Run(const Save& save) {
  Result<FilePart> result = WriteFile(save);
  {
    const MutexLock lock(mutex_);
    if (result.ok() && cancelled_) {
      result = CancelledError("the save of step {} was given up", save.request.step);
    }
    cancelled_ = true;
    while (active_ > 0) {
      changed_.WaitUntil(mutex_, After(kPoll));
    }
  }
  if (result.ok()) {
    seconds_.Observe(result->seconds);
    bytes_.Set(static_cast<double>(result->file.bytes));
  } else {
    failures_.Add();
    ::unlink(save.path().c_str());
  }
  if (save.done) {
    save.done(result);
  }
  const MutexLock lock(mutex_);
  outcome_ = std::move(result);
  save_.reset();
  claimed_ = false;
  changed_.NotifyAll();
}

Status Writer::Implementation::WriteItem(const Save& save,
                                         const SaveItem& item,
                                         Hdf5File& file,
                                         BoxRecord& record) {
  HEDDLE_RETURN_IF_ERROR(file.BeginDataset(item.dataset, item.stored, item.chunk));
  for (int64_t index = 0; index < item.grid.count(); ++index) {
    const int64_t task = item.first_task + index;
    const auto slot = static_cast<size_t>(task % kWindow);
    {
      const MutexLock lock(mutex_);
      while (!ready_[slot] && !cancelled_) {
        changed_.WaitUntil(mutex_, After(kPoll));
      }
      if (cancelled_) {
        return CancelledError("the save of step {} was given up", save.request.step);
      }
    }
    const Encoded& encoded = slots_[slot];
    HEDDLE_RETURN_IF_ERROR(encoded.status);
    const auto bytes = std::span(encoded.bytes).first(static_cast<size_t>(encoded.size));
    HEDDLE_ASSIGN_OR_RETURN(const int64_t address,
                            file.WriteChunk(item.grid.Full(index).offset, bytes));
    record.chunks.push_back({.address = address, .bytes = encoded.size, .hash = encoded.hash});
    record.digest += encoded.digest;
    const MutexLock lock(mutex_);
    ready_[slot] = false;
    ++written_;
    changed_.NotifyAll();
  }
  return file.EndDataset();
}

Result<FilePart> Writer::Implementation::WriteFile(const Save& save) {
  HEDDLE_RETURN_IF_ERROR(MakeFolders(save.folder));
  HEDDLE_ASSIGN_OR_RETURN(auto file, Hdf5File::Create(save.path()));
  FilePart part;
  part.step = save.request.step;
  part.generation = save.request.generation;
  part.file.name = save.file;
  part.raw_bytes = save.raw_bytes;
  for (const SaveItem& item : save.items) {
    BoxRecord record;
    record.box = item.stored.box;
    record.chunk = item.chunk;
    record.dataset = item.dataset;
    HEDDLE_RETURN_IF_ERROR(WriteItem(save, item, *file, record));
    part.boxes.push_back({.tensor = item.stored.tensor(), .record = std::move(record)});
  }
  for (const StoredBox& stored : save.empty) {
    FilePart::PartBox box{.tensor = stored.tensor(), .record = {}};
    box.record.box = stored.box;
    part.boxes.push_back(std::move(box));
  }
  HEDDLE_RETURN_IF_ERROR(file->Close());
  HEDDLE_RETURN_IF_ERROR(SyncFolder(save.folder));
  // The library writes its metadata out of order, so the hash is taken from the finished file; its
  // pages are still in memory.
  HEDDLE_ASSIGN_OR_RETURN(const OpenedFile finished, OpenRegularFile(save.path()));
  part.file.bytes = finished.bytes;
  HEDDLE_ASSIGN_OR_RETURN(part.file.hash, HashFile(finished, save.path()));
  part.seconds = Seconds(Now() - save.started);
  return part;
}

Writer::Writer(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}

Writer::~Writer() = default;

Result<std::unique_ptr<Writer>> Writer::Create(WriterOptions options, metrics::Registry& metrics) {
  if (options.name.empty() || options.codec_threads < 1 || options.codec_threads > 256 ||
      options.niceness < 0 || options.niceness > 19 || options.chunk_bytes < 64 ||
      options.chunk_bytes > (int64_t{64} << 20) ||
      !IsPlainFileName(EscapeName(options.name) + ".g9223372036854775807.h5")) {
    return InvalidArgumentError("checkpoint writer '{}': an option is out of range", options.name);
  }
  HEDDLE_RETURN_IF_ERROR(MakeFolders(options.root));
  const int64_t reserve = std::min(options.reserve_bytes, options.staging_limit_bytes);
  auto implementation = std::make_unique<Implementation>(std::move(options), metrics);
  HEDDLE_RETURN_IF_ERROR(implementation->staging().Reserve(reserve));
  return std::unique_ptr<Writer>(new Writer(std::move(implementation)));
}

Result<SnapshotInfo> Writer::Snapshot(const SaveRequest& request,
                                      std::span<const BoxView> boxes,
                                      Done done) {
  return implementation_->Snapshot(request, boxes, std::move(done));
}

Result<FilePart> Writer::Wait(Deadline deadline) {
  return implementation_->Wait(deadline);
}

void Writer::Cancel() {
  implementation_->Cancel();
}

bool Writer::busy() const {
  return implementation_->busy();
}

}  // namespace heddle::checkpoint
