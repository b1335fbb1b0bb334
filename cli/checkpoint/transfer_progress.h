/// \file
/// The progress of a long operation over many bytes: share, rate and time left, on standard error.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <unistd.h>

#include "base/clock.h"

namespace heddle::cli {

/// Shows the progress of one operation. It shows nothing in the first two seconds; then, on a
/// terminal, a line that is updated in place:
///
///     [####################                    ]  52.1 %  16684 of 32000 MB  431 MB/s  36 s left
///
/// Elsewhere it prints a line without the bar, at most every five seconds. Thread: one caller at a
/// time.
class TransferProgress {
 public:
  /// Writes to `fd`, which it does not own; writes nothing if `silent`.
  explicit TransferProgress(bool silent, int fd = STDERR_FILENO, std::function<Time()> now = Now);
  /// Ends the line on the terminal, if one was shown.
  ~TransferProgress();
  TransferProgress(const TransferProgress&) = delete;
  TransferProgress& operator=(const TransferProgress&) = delete;

  /// Updates the progress. The rate counts only bytes after the first call, whose `done_bytes` may
  /// have been done earlier.
  void Update(int64_t done_bytes, int64_t all_bytes);

 private:
  const bool silent_;
  const int fd_;
  const std::function<Time()> now_;
  const bool terminal_;
  const Time started_;
  std::optional<int64_t> before_;  ///< `done_bytes` of the first call.
  Time next_;
  bool shown_ = false;
};

}  // namespace heddle::cli
