/// \file
/// Memory for snapshots and for blocks of files that is kept between uses and touched beforehand,
/// because copying into fresh pages is many times slower than into pages that the process already
/// has.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace heddle::checkpoint {

/// A growable buffer of touched pages. Thread: one caller at a time.
class StagingBuffer {
 public:
  StagingBuffer() = default;
  ~StagingBuffer();
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  /// Makes room for `bytes`; the content is lost if the buffer grows. Errors: kResourceExhausted.
  Status Reserve(int64_t bytes);
  /// Makes room for `bytes` and keeps the content. Grows by at least half; data() may change.
  /// Errors: kResourceExhausted.
  Status Extend(int64_t bytes);
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  void Take(void* memory, int64_t size);

  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace heddle::checkpoint
