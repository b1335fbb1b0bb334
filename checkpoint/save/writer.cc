#include "checkpoint/save/writer.h"

#include <algorithm>
#include <utility>

#include "checkpoint/format/layout.h"
#include "checkpoint/save/memory_shard.h"
#include "checkpoint/save/writer_implementation.h"

namespace heddle::checkpoint {

namespace {

Status OverError(int64_t generation) {
  return CancelledError("not saved: generation {} is over", generation);
}

}  // namespace

WriterStats CheckpointFigures(metrics::Registry& metrics) {
  return {
      .stall_seconds = &metrics.GetHistogram("heddle_checkpoint_stall_seconds",
                                             "Time for which a snapshot stopped training, in all.",
                                             {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10}),
      .seconds = &metrics.GetHistogram("heddle_checkpoint_seconds",
                                       "Time from a snapshot until its file is on storage.",
                                       {0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300}),
      .bytes = &metrics.GetGauge("heddle_checkpoint_bytes", "Stored bytes of the newest save.",
                                 {{"scope", "worker"}}),
      .failures = &metrics.GetCounter("heddle_checkpoint_failures_total", "Saves that failed.",
                                      {{"scope", "worker"}})};
}

Writer::Implementation::Implementation(WriterOptions options,
                                       std::unique_ptr<Storage> storage,
                                       const WriterStats& figures)
    : options_(std::move(options)),
      storage_(std::move(storage)),
      figures_(figures) {
  Reserve(options_.reserve_bytes);
  Grow();
  threads_.emplace_back("save-write", [this] { WriteLoop(); });
  for (int i = 0; i < options_.codec_threads; ++i) {
    threads_.emplace_back("save-encode", [this] { EncodeLoop(); });
  }
}

Writer::Implementation::~Implementation() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    cancelled_ = true;
    changed_.NotifyAll();
  }
  copy_.Cancel();
  threads_.clear();
}

void Writer::Implementation::Reserve(int64_t bytes) {
  const MutexLock lock(mutex_);
  reserve_ = std::max(reserve_, std::min(bytes, options_.staging_limit_bytes));
  changed_.NotifyAll();
}

Status Writer::Implementation::AwaitClaim(const SaveRequest& request) {
  if (request.step < 0 || request.step >= 100'000'000 || request.generation < 0) {
    return InvalidArgumentError("save of step {} in generation {}", request.step,
                                request.generation);
  }
  if (request.memory == nullptr && options_.root.empty()) {
    return InvalidArgumentError("step {} is to be saved on storage: no folder is known",
                                request.step);
  }
  const Deadline deadline = After(request.wait);
  const MutexLock lock(mutex_);
  while (claim_ != Claim::kNone) {
    if (!changed_.WaitUntil(mutex_, claim_ == Claim::kGrow ? After(kPoll) : deadline) &&
        claim_ == Claim::kSave) {
      return UnavailableError("step {} is not saved: the save before it is still being written",
                              request.step);
    }
  }
  claim_ = Claim::kSave;
  cancelled_ = false;
  return Status::Ok();
}

Status Writer::Implementation::Failed(Status status) const {
  if (figures_.failures != nullptr) {
    figures_.failures->Add();
  }
  return status;
}

Result<SnapshotInfo> Writer::Implementation::Snapshot(const SaveRequest& request,
                                                      std::span<const BoxView> boxes,
                                                      Done done) {
  const Time start = Now();
  if (request.memory == nullptr && storage_ == nullptr) {
    return Failed(
        InvalidArgumentError("checkpoint writer '{}' has no storage, and step {} no memory",
                             options_.name, request.step));
  }
  const Result<int64_t> staged_bytes = StagingBytes(boxes);
  if (!staged_bytes.ok()) {
    return Failed(staged_bytes.status());
  }
  const int64_t staging_bytes = *staged_bytes;
  if (Status claimed = AwaitClaim(request); !claimed.ok()) {
    return Failed(std::move(claimed));
  }
  const bool direct = request.memory == nullptr &&
                      (!request.background || staging_bytes > options_.staging_limit_bytes);
  // Elements that stay uncompressed are copied to their final place.
  StagingBuffer& staging =
      request.memory != nullptr && !request.compress ? request.memory->memory : staging_;
  const auto prepare = [&]() -> Result<std::shared_ptr<Save>> {
    if (!direct) {
      HEDDLE_RETURN_IF_ERROR(staging.Reserve(staging_bytes));
    }
    return PrepareSave(options_, request, boxes, direct ? nullptr : staging.data());
  };
  auto save = prepare();
  Status status = save.status();
  SnapshotInfo info;
  {
    const MutexLock lock(mutex_);
    if (status.ok() && direct && request.generation < fence_) {
      status = OverError(request.generation);
    }
    if (!status.ok()) {
      claim_ = Claim::kNone;
      changed_.NotifyAll();
      return Failed(std::move(status));
    }
    info.raw_bytes = (*save)->raw_bytes;
    (*save)->started = start;
    (*save)->done = std::move(done);
    if (request.memory == nullptr) {
      (*save)->folder = storage_->SaveFolder(request.step, request.generation);
    }
    copy_.Begin((*save)->copies);
    window_.Begin((*save)->tasks());
    outcome_.reset();
    save_ = *std::move(save);
    stall_ = Now() - start;
    changed_.NotifyAll();
  }
  if (direct) {
    HEDDLE_RETURN_IF_ERROR(WaitUntilRead(/*ended=*/!request.background));
  } else if (!request.deferred) {
    FinishCopy();
  }
  info.stall_seconds = Seconds(Now() - start);
  return info;
}

// Whether the copy stops the caller, which then belongs to the save until LeaveCopy.
bool Writer::Implementation::EnterCopy() {
  if (!copy_.active()) {
    return false;
  }
  const MutexLock lock(mutex_);
  if (save_) {
    ++callers_;
  }
  return save_ != nullptr;
}

void Writer::Implementation::LeaveCopy(Time begun) {
  const MutexLock lock(mutex_);
  --callers_;
  stall_ += Now() - begun;
  changed_.NotifyAll();
}

void Writer::Implementation::BeforeChange(std::span<const std::byte> memory) {
  const Time begun = Now();
  if (EnterCopy()) {
    copy_.Secure(memory);
    LeaveCopy(begun);
  }
}

void Writer::Implementation::FinishCopy() {
  const Time begun = Now();
  if (EnterCopy()) {
    copy_.Finish();
    LeaveCopy(begun);
  }
}

// Waits until the caller's memory is not needed any more or, if `ended`, until the save has ended.
Status Writer::Implementation::WaitUntilRead(bool ended) {
  const Deadline deadline = After(kDirectTimeout);
  const MutexLock lock(mutex_);
  while (save_ && (ended || !window_.AllEncoded())) {
    const int64_t generation = save_->request.generation;
    if (generation < fence_ || Now() >= deadline) {
      cancelled_ = true;
      changed_.NotifyAll();
      // The caller's memory is read until the threads have finished the chunk they are at.
      while (!window_.IsIdle()) {
        changed_.WaitUntil(mutex_, After(kPoll));
      }
      if (generation < fence_) {
        return OverError(generation);
      }
      return DeadlineExceededError("the disk took more than {} s", Seconds(kDirectTimeout));
    }
    changed_.WaitUntil(mutex_, std::min(deadline, After(kPoll)));
  }
  return outcome_ && !outcome_->ok() ? outcome_->status() : Status::Ok();
}

Result<FilePart> Writer::Implementation::Wait(Deadline deadline) {
  const MutexLock lock(mutex_);
  while (claim_ != Claim::kNone) {
    if (!changed_.WaitUntil(mutex_, deadline) && claim_ != Claim::kNone) {
      return DeadlineExceededError("the save is still being written");
    }
  }
  if (!outcome_) {
    return FailedPreconditionError("there was no save");
  }
  return *outcome_;
}

void Writer::Implementation::Cancel() {
  {
    const MutexLock lock(mutex_);
    if (!save_) {
      return;
    }
    cancelled_ = true;
    changed_.NotifyAll();
  }
  copy_.Cancel();
}

void Writer::Implementation::Fence(int64_t generation) {
  const MutexLock lock(mutex_);
  fence_ = std::max(fence_, generation);
  changed_.NotifyAll();
}

bool Writer::Implementation::busy() const {
  const MutexLock lock(mutex_);
  return claim_ == Claim::kSave;
}

Writer::Writer(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}

Writer::~Writer() = default;

Result<std::unique_ptr<Writer>> Writer::Create(WriterOptions options, metrics::Registry& metrics) {
  return Create(std::move(options), CheckpointFigures(metrics));
}

Result<std::unique_ptr<Writer>> Writer::Create(WriterOptions options, const WriterStats& figures) {
  if (options.name.empty() || options.codec_threads < 1 || options.codec_threads > 256 ||
      options.niceness < 0 || options.niceness > 19 || options.chunk_bytes < 64 ||
      options.chunk_bytes > (int64_t{64} << 20) ||
      !IsPlainFileName(EscapeName(options.name) + ".g9223372036854775807.h5")) {
    return InvalidArgumentError("checkpoint writer '{}': an option is out of range", options.name);
  }
  std::unique_ptr<Storage> storage;
  if (!options.root.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(storage, OpenStorage(options.root));
    HEDDLE_RETURN_IF_ERROR(storage->Prepare());
  }
  return std::unique_ptr<Writer>(new Writer(
      std::make_unique<Implementation>(std::move(options), std::move(storage), figures)));
}

void Writer::Reserve(int64_t bytes) {
  implementation_->Reserve(bytes);
}

Result<SnapshotInfo> Writer::Snapshot(const SaveRequest& request,
                                      std::span<const BoxView> boxes,
                                      Done done) {
  return implementation_->Snapshot(request, boxes, std::move(done));
}

void Writer::BeforeChange(std::span<const std::byte> memory) {
  implementation_->BeforeChange(memory);
}

void Writer::FinishCopy() {
  implementation_->FinishCopy();
}

Result<FilePart> Writer::Wait(Deadline deadline) {
  return implementation_->Wait(deadline);
}

void Writer::Cancel() {
  implementation_->Cancel();
}

void Writer::Fence(int64_t generation) {
  implementation_->Fence(generation);
}

bool Writer::busy() const {
  return implementation_->busy();
}

}  // namespace heddle::checkpoint
