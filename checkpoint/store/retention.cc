#include "checkpoint/store/retention.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/format/strict_json.h"

namespace heddle::checkpoint {

namespace {

constexpr const char* kLossKey = "validation_loss";
constexpr const char* kDataKey = "data";
constexpr int kMaxExtraDepth = 16;

Status SetExtra(JobState& job, const char* key, const nlohmann::json& value) {
  nlohmann::json extra = nlohmann::json::object();
  if (!job.extra.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(extra, ParseStrictJson(job.extra, kMaxExtraDepth));
  }
  if (!extra.is_object()) {
    return InvalidArgumentError("the checkpoint's extra is no JSON object");
  }
  extra[key] = value;
  job.extra = extra.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return Status::Ok();
}

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
  const auto extra = ParseStrictJson(job.extra, kMaxExtraDepth);
  if (!extra.ok() || !extra->is_object() || !extra->contains(kLossKey) ||
      !(*extra)[kLossKey].is_number()) {
    return std::nullopt;
  }
  return (*extra)[kLossKey].get<double>();
}

Status SetValidationLoss(JobState& job, double loss) {
  return std::isfinite(loss) ? SetExtra(job, kLossKey, loss) : Status::Ok();
}

uint64_t DataFingerprint(const JobState& job) {
  const auto extra = ParseStrictJson(job.extra, kMaxExtraDepth);
  if (!extra.ok() || !extra->is_object() || !extra->contains(kDataKey) ||
      !(*extra)[kDataKey].is_string()) {
    return 0;
  }
  const auto& text = (*extra)[kDataKey].get_ref<const std::string&>();
  uint64_t fingerprint = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), fingerprint, 16);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() ? fingerprint : 0;
}

Status SetDataFingerprint(JobState& job, uint64_t fingerprint) {
  return fingerprint == 0 ? Status::Ok()
                          : SetExtra(job, kDataKey, fmt::format("{:016x}", fingerprint));
}

}  // namespace heddle::checkpoint
