#include "checkpoint/store/retention.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace heddle::checkpoint {

std::vector<int64_t> StepsToRemove(std::span<const RetentionCandidate> candidates,
                                   const RetentionOptions& options) {
  const RetentionCandidate* best = nullptr;
  for (const RetentionCandidate& candidate : candidates) {
    if (candidate.loss && !std::isnan(*candidate.loss) &&
        (best == nullptr || *candidate.loss <= *best->loss)) {
      best = &candidate;
    }
  }
  const auto count = static_cast<int64_t>(candidates.size());
  const auto& guarded = options.protected_steps;
  std::vector<int64_t> leaving;
  for (int64_t i = 0; i < count - options.keep_last; ++i) {
    const RetentionCandidate& candidate = candidates[static_cast<size_t>(i)];
    const bool stays = (options.keep_every > 0 && candidate.step % options.keep_every == 0) ||
                       (options.keep_best && &candidate == best) ||
                       std::find(guarded.begin(), guarded.end(), candidate.step) != guarded.end();
    if (!stays) {
      leaving.push_back(candidate.step);
    }
  }
  return leaving;
}

}  // namespace heddle::checkpoint
