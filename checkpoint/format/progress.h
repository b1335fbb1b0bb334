/// \file
/// How far a long operation over many bytes is.
#pragma once

#include <cstdint>
#include <functional>

namespace heddle::checkpoint {

/// Called on the caller's thread with the bytes that are done and all there are: once at the start,
/// with what was done before (else 0), then at most once a tile or chunk. May be empty.
using Progress = std::function<void(int64_t done, int64_t all)>;

/// Counts for one operation. Thread: one caller at a time.
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
