/// \file
/// When a request is worth another attempt, and after which pause: exponential backoff with full
/// jitter, so that workers that failed together do not come back together. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "base/clock.h"

namespace heddle::s3 {

struct RetryLimits {
  int most_attempts = 8;
  Duration total = std::chrono::seconds(60);  ///< From the first attempt to the last one's end.
  Duration first = std::chrono::milliseconds(200);  ///< Longest pause after the first failure,
  Duration most = std::chrono::seconds(10);         ///< doubled from failure to failure up to this.
};

/// The pause after failure number `failures` (from 1), `elapsed` after the first attempt began: a
/// part `uniform`, in [0, 1), of the longest one. None: give up.
std::optional<Duration> RetryPause(const RetryLimits& limits,
                                   int failures,
                                   Duration elapsed,
                                   double uniform);

/// Whether an answer with this HTTP status and S3 error code says "later", not "no".
bool IsTransient(int http_status, std::string_view code);

}  // namespace heddle::s3
