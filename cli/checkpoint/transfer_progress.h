/// \file
/// How far a long operation over many bytes is: share, rate and time left, on standard error.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <unistd.h>

#include "base/clock.h"

namespace heddle::cli {

/// Shows nothing in the first two seconds; then, on a terminal, a bar that is written over:
///
///     [#########################                       ]  52.1 %  16684 of 32000 MB  431 MB/s  36
///     s left
///
/// and elsewhere the same without the bar, as a new line at most every five seconds.
/// Thread: one caller at a time.
class TransferProgress {
 public:
  /// Writes to `fd`, which it does not own; nothing ever when `silent`.
  explicit TransferProgress(bool silent, int fd = STDERR_FILENO, std::function<Time()> now = Now);
  /// Ends the bar's line, when one was shown.
  ~TransferProgress();
  TransferProgress(const TransferProgress&) = delete;
  TransferProgress& operator=(const TransferProgress&) = delete;

  /// The first call says what was done before: the rate is that of what comes after it.
  void Update(int64_t done_bytes, int64_t all_bytes);

 private:
  const bool silent_;
  const int fd_;
  const std::function<Time()> now_;
  const bool terminal_;
  const Time started_;
  std::optional<int64_t> before_;  ///< Done at the first call.
  Time next_;
  bool shown_ = false;
};

}  // namespace heddle::cli
