/// \file
/// How far a long copy is: bytes, rate and time left, on standard error.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace heddle::cli {

/// Shows nothing in the first two seconds; then a line that is written over on a terminal, and a
/// new line every ten seconds elsewhere. Thread: one caller at a time.
class TransferProgress {
 public:
  TransferProgress();
  /// Ends the line, when one was shown.
  ~TransferProgress();
  TransferProgress(const TransferProgress&) = delete;
  TransferProgress& operator=(const TransferProgress&) = delete;

  void Update(int64_t done_bytes, int64_t all_bytes);

 private:
  const bool terminal_;
  const Time started_;
  Time next_;
  bool shown_ = false;
};

}  // namespace heddle::cli
