/// \file
/// Memory that a fake device exports. A memory file stands for its dma-buf, and the device sees
/// another one: what network devices wrote reaches it at a flush alone, and what compute wrote
/// reaches them once the work has ended.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/system/unique_fd.h"
#include "engine/runtime/device/exported_memory.h"

namespace heddle::runtime::testing {

/// Thread: any; Open and Close from one.
class FakeExport final : public ExportedMemory {
 public:
  /// `flushes`: else Flush does nothing.
  FakeExport(size_t bytes, bool flushes);
  ~FakeExport() override;

  int fd() const override { return file_.get(); }
  std::span<std::byte> bytes() const override { return seen_; }
  at::Device place() const override { return at::kCPU; }
  Status Flush() override HEDDLE_EXCLUDES(mutex_);

  /// Lets this process read and write what the device sees.
  void Open() HEDDLE_EXCLUDES(mutex_);
  void Close() HEDDLE_EXCLUDES(mutex_);

 private:
  const bool flushes_;
  UniqueFd file_;
  UniqueFd seen_file_;
  std::span<std::byte> seen_;
  Mutex mutex_;
  bool open_ HEDDLE_GUARDED_BY(mutex_) = false;
  std::vector<std::byte> known_ HEDDLE_GUARDED_BY(mutex_);  ///< In both files.
};

}  // namespace heddle::runtime::testing
