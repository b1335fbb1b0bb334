#include "checkpoint/store/retention.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "checkpoint/format/strict_json.h"

namespace heddle::checkpoint {

namespace {

constexpr const char* kLossKey = "validation_loss";
constexpr int kMaximumExtraDepth = 16;

}  // namespace

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

std::optional<double> ValidationLoss(const JobState& job) {
  const auto extra = ParseStrictJson(job.extra, kMaximumExtraDepth);
  if (!extra.ok() || !extra->is_object() || !extra->contains(kLossKey) ||
      !(*extra)[kLossKey].is_number()) {
    return std::nullopt;
  }
  return (*extra)[kLossKey].get<double>();
}

Status SetValidationLoss(JobState& job, double loss) {
  if (!std::isfinite(loss)) {
    return Status::Ok();
  }
  nlohmann::json extra = nlohmann::json::object();
  if (!job.extra.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(extra, ParseStrictJson(job.extra, kMaximumExtraDepth));
  }
  if (!extra.is_object()) {
    return InvalidArgumentError("the checkpoint's extra is no JSON object");
  }
  extra[kLossKey] = loss;
  job.extra = extra.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return Status::Ok();
}

}  // namespace heddle::checkpoint
