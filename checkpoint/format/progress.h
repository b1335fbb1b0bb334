/// \file
/// Progress reports of a long operation over many bytes.
#pragma once

#include <cstdint>
#include <functional>

namespace heddle::checkpoint {

/// Called on the caller's thread with the number of bytes done and of all bytes: once at the start,
/// with the bytes done by an earlier attempt or 0, then at most once per tile or chunk. May be
/// empty.
using Progress = std::function<void(int64_t done, int64_t all)>;

/// Counts the bytes done of one operation and reports them. Thread: one caller at a time.
class ProgressCount {
 public:
  ProgressCount(const Progress& progress, int64_t all, int64_t done = 0)
      : progress_(progress),
        all_(all),
        done_(done) {
    Add(0);
  }
  void Add(int64_t bytes) {
    done_ += bytes;
    if (progress_) {
      progress_(done_, all_);
    }
  }

 private:
  const Progress& progress_;
  const int64_t all_;
  int64_t done_;
};

}  // namespace heddle::checkpoint
