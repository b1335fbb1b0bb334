/// \file
/// The retry policy of requests: exponential backoff with full jitter, so that workers that failed
/// together do not retry together. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "base/clock.h"

namespace heddle::s3 {

struct RetryLimits {
  int most_attempts = 8;
  Duration total = std::chrono::seconds(60);        ///< Time limit of all attempts together.
  Duration first = std::chrono::milliseconds(200);  ///< Longest pause after the first failure.
  Duration most = std::chrono::seconds(10);         ///< Limit of the pause, which doubles.
};

/// The pause after failure number `failures` (from 1), `elapsed` after the first attempt began: the
/// fraction `uniform`, in [0, 1), of the longest pause. None: do not retry.
std::optional<Duration> RetryPause(const RetryLimits& limits,
                                   int failures,
                                   Duration elapsed,
                                   double uniform);

/// Whether an HTTP status or S3 error code means a transient error, after which a retry may
/// succeed.
bool IsTransient(int http_status, std::string_view code);

}  // namespace heddle::s3
