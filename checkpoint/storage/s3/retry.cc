#include "checkpoint/storage/s3/retry.h"

#include <algorithm>

namespace heddle::s3 {

std::optional<Duration> RetryPause(const RetryLimits& limits,
                                   int failures,
                                   Duration elapsed,
                                   double uniform) {
  if (failures >= limits.most_attempts) {
    return std::nullopt;
  }
  Duration longest = limits.first;
  for (int i = 1; i < failures && longest < limits.most; ++i) {
    longest *= 2;
  }
  const Duration pause = FromSeconds(Seconds(std::min(longest, limits.most)) * uniform);
  return elapsed + pause < limits.total ? std::optional(pause) : std::nullopt;
}

bool IsTransient(int http_status, std::string_view code) {
  return http_status == 500 || http_status == 502 || http_status == 503 || http_status == 504 ||
         http_status == 429 || http_status == 408 || code == "SlowDown" ||
         code == "InternalError" || code == "ServiceUnavailable" || code == "RequestTimeout";
}

}  // namespace heddle::s3
