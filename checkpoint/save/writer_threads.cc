// A writer's threads: those that copy and compress, and the one that writes.
#include <algorithm>
#include <utility>

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/system/file.h"
#include "checkpoint/files/hdf5_file.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/save/memory_shard.h"
#include "checkpoint/save/writer_implementation.h"

namespace heddle::checkpoint {
namespace {

void LowerPriority(int niceness) {
  // Linux sets the niceness of a thread by its id; a refusal leaves the thread as it is.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), niceness);
}

void Count(const Result<FilePart>& result, const SnapshotInfo& info, const WriterStats& figures) {
  if (figures.stall_seconds != nullptr) {
    figures.stall_seconds->Observe(info.stall_seconds);
  }
  if (result.ok() && figures.seconds != nullptr) {
    figures.seconds->Observe(result->seconds);
  }
  if (result.ok() && figures.bytes != nullptr) {
    figures.bytes->Set(static_cast<double>(result->file.bytes));
  }
  if (!result.ok() && figures.failures != nullptr) {
    figures.failures->Add();
  }
}

}  // namespace

bool Writer::Implementation::CanGrow() const {
  return claim_ == Claim::kNone && reserve_ > staged_;
}

void Writer::Implementation::Grow() {
  int64_t bytes = 0;
  {
    const MutexLock lock(mutex_);
    if (!CanGrow()) {
      return;
    }
    claim_ = Claim::kGrow;
    bytes = staged_ = reserve_;
  }
  staging_.Reserve(bytes).IgnoreError("the snapshot that needs the memory says so");
  const MutexLock lock(mutex_);
  claim_ = Claim::kNone;
  changed_.NotifyAll();
}

void Writer::Implementation::EncodeLoop() {
  LowerPriority(options_.niceness);
  ChunkEncoder encoder;
  EncodeMemory memory;
  for (;;) {
    std::shared_ptr<Save> save;
    int64_t task = 0;
    {
      const MutexLock lock(mutex_);
      while (!stop_ && (!save_ || cancelled_ || !window_.CanTake())) {
        changed_.WaitUntil(mutex_, After(kPoll));
      }
      if (stop_) {
        return;
      }
      save = save_;
      task = window_.Take();
    }
    if (copy_.active()) {  // Training waits for the copy, and for nothing else.
      if (options_.before_copy) {
        options_.before_copy();
      }
      if (save->raw) {  // There is little to do beside it: a hash, while the caches have the copy.
        copy_.Secure(
            save->copies[static_cast<size_t>(save->task_items[static_cast<size_t>(task)])].from);
      } else {
        copy_.Finish();
      }
    }
    EncodeTask(*save, task, encoder, memory, slots_[EncodeWindow::SlotOf(task)]);
    const MutexLock lock(mutex_);
    window_.Encoded(task);
    if (!save->staged && window_.AllEncoded()) {
      stall_ = Now() - save->started;
    }
    changed_.NotifyAll();
  }
}

void Writer::Implementation::WriteLoop() {
  LowerPriority(options_.niceness);
  for (;;) {
    std::shared_ptr<Save> save;
    {
      const MutexLock lock(mutex_);
      while (!stop_ && !save_ && !CanGrow()) {
        changed_.WaitUntil(mutex_, After(kPoll));
      }
      if (stop_ && !save_) {
        return;
      }
      save = save_;
    }
    if (save) {
      Run(*save);
    } else {
      Grow();
    }
  }
}

void Writer::Implementation::Run(const Save& save) {
  Result<FilePart> result = save.request.memory != nullptr ? WriteMemory(save) : WriteFile(save);
  {
    const MutexLock lock(mutex_);
    if (result.ok() && cancelled_) {
      result = CancelledError("the save of step {} was given up", save.request.step);
    }
    cancelled_ = true;
  }
  copy_.Cancel();  // No caller waits for a failed save.
  SnapshotInfo info{.raw_bytes = save.raw_bytes};
  {
    const MutexLock lock(mutex_);
    while (!window_.IsIdle() || callers_ > 0) {
      changed_.WaitUntil(mutex_, After(kPoll));
    }
    info.stall_seconds = Seconds(save.request.background ? stall_ : Now() - save.started);
  }
  Count(result, info, figures_);
  if (!result.ok() && save.request.memory == nullptr) {
    ::unlink(save.path().c_str());
  }
  if (save.done) {
    save.done(result, info);
  }
  const MutexLock lock(mutex_);
  outcome_ = std::move(result);
  save_.reset();
  claim_ = Claim::kNone;
  changed_.NotifyAll();
}

Status Writer::Implementation::WriteItem(const Save& save,
                                         const SaveItem& item,
                                         ChunkSink& sink,
                                         BoxRecord& record) {
  for (int64_t index = 0; index < item.grid.count(); ++index) {
    const int64_t task = item.first_task + index;
    {
      const MutexLock lock(mutex_);
      while (!window_.IsReady(task) && !cancelled_) {
        changed_.WaitUntil(mutex_, After(kPoll));
      }
      if (cancelled_) {
        return CancelledError("the save of step {} was given up", save.request.step);
      }
    }
    const Encoded& encoded = slots_[EncodeWindow::SlotOf(task)];
    if (!encoded.derived) {
      HEDDLE_RETURN_IF_ERROR(encoded.status);
      if (index == 0) {
        HEDDLE_RETURN_IF_ERROR(sink.BeginDataset(item.dataset, item.stored, item.chunk));
        record.chunk = item.chunk;
        record.dataset = item.dataset;
        record.stored_as = item.stored.stored_as;
        record.raw = save.raw;
      }
      HEDDLE_ASSIGN_OR_RETURN(const int64_t address,
                              sink.WriteChunk(item.grid.Full(index).offset, encoded.bytes));
      record.chunks.push_back({.address = address,
                               .bytes = static_cast<int64_t>(encoded.bytes.size()),
                               .hash = encoded.hash});
    }
    record.digest += encoded.digest;
    const MutexLock lock(mutex_);
    window_.Written(task);
    changed_.NotifyAll();
  }
  if (record.chunks.empty()) {
    record.derived_from = kMasterRole;
    return Status::Ok();
  }
  return sink.EndDataset();
}

Result<FilePart> Writer::Implementation::WriteItems(const Save& save, ChunkSink& sink) {
  FilePart part;
  part.step = save.request.step;
  part.generation = save.request.generation;
  part.raw_bytes = save.raw_bytes;
  for (const SaveItem& item : save.items) {
    BoxRecord record;
    record.box = item.stored.box;
    HEDDLE_RETURN_IF_ERROR(WriteItem(save, item, sink, record));
    part.boxes.push_back({.tensor = item.stored.tensor(), .record = std::move(record)});
  }
  for (const StoredBox& stored : save.empty) {
    FilePart::PartBox box{.tensor = stored.tensor(), .record = {}};
    box.record.box = stored.box;
    part.boxes.push_back(std::move(box));
  }
  return part;
}

Result<FilePart> Writer::Implementation::WriteMemory(const Save& save) {
  MemoryShard& memory = *save.request.memory;
  FilePart part;
  if (save.raw) {
    InPlaceSink sink(memory.memory);
    HEDDLE_ASSIGN_OR_RETURN(part, WriteItems(save, sink));
    part.file.bytes = save.staged_bytes;
  } else {
    AppendingSink sink(memory.memory);
    HEDDLE_ASSIGN_OR_RETURN(part, WriteItems(save, sink));
    part.file.bytes = sink.used();
  }
  part.file.name = save.file;
  part.seconds = Seconds(Now() - save.started);
  memory.part = part;
  return part;
}

Result<FilePart> Writer::Implementation::WriteFile(const Save& save) {
  HEDDLE_RETURN_IF_ERROR(MakeFolders(save.folder));
  HEDDLE_ASSIGN_OR_RETURN(
      auto file,
      Hdf5File::Create(save.path(), static_cast<int64_t>(save.items.size()), save.tasks()));
  HEDDLE_ASSIGN_OR_RETURN(FilePart part, WriteItems(save, *file));
  HEDDLE_ASSIGN_OR_RETURN(part.file, file->Close());
  HEDDLE_RETURN_IF_ERROR(file->Sync());
  const auto cancelled = [this] {
    const MutexLock lock(mutex_);
    return cancelled_;
  };
  HEDDLE_RETURN_IF_ERROR(storage_->Persist(part.step, part.generation, part.file, cancelled));
  part.seconds = Seconds(Now() - save.started);
  return part;
}

}  // namespace heddle::checkpoint
