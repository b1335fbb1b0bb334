#include "checkpoint/format/extra.h"

#include <charconv>
#include <cmath>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/format/strict_json.h"

namespace heddle::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr const char* kLossKey = "validation_loss";
constexpr const char* kDataKey = "data";
constexpr const char* kGuaranteeKey = "guarantee";
constexpr int kMaxExtraDepth = 16;

// The field of `extra` with this key; null: there is none, or `extra` is no object.
Json FieldOf(const JobState& job, const char* key) {
  const auto extra = ParseStrictJson(job.extra, kMaxExtraDepth);
  return extra.ok() && extra->is_object() && extra->contains(key) ? (*extra)[key] : Json();
}

Status SetExtra(JobState& job, const char* key, const Json& value) {
  Json extra = Json::object();
  if (!job.extra.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(extra, ParseStrictJson(job.extra, kMaxExtraDepth));
  }
  if (!extra.is_object()) {
    return InvalidArgumentError("the checkpoint's extra is no JSON object");
  }
  extra[key] = value;
  job.extra = extra.dump(-1, ' ', false, Json::error_handler_t::replace);
  return Status::Ok();
}

}  // namespace

std::optional<double> ValidationLoss(const JobState& job) {
  const Json loss = FieldOf(job, kLossKey);
  return loss.is_number() ? std::optional(loss.get<double>()) : std::nullopt;
}

Status SetValidationLoss(JobState& job, double loss) {
  return std::isfinite(loss) ? SetExtra(job, kLossKey, loss) : Status::Ok();
}

uint64_t DataFingerprint(const JobState& job) {
  const Json field = FieldOf(job, kDataKey);
  const std::string text = field.is_string() ? field.get<std::string>() : "";
  uint64_t fingerprint = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), fingerprint, 16);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() ? fingerprint : 0;
}

Status SetDataFingerprint(JobState& job, uint64_t fingerprint) {
  return fingerprint == 0 ? Status::Ok()
                          : SetExtra(job, kDataKey, fmt::format("{:016x}", fingerprint));
}

GuaranteeRecord GuaranteeOf(const JobState& job) {
  const Json field = FieldOf(job, kGuaranteeKey);
  try {
    return {.guarantee = field.at("guarantee"),
            .reason = field.at("reason"),
            .arithmetic = field.at("arithmetic").get<std::map<std::string, std::string>>()};
  } catch (const Json::exception&) {
    return {};
  }
}

Status SetGuarantee(JobState& job, const GuaranteeRecord& record) {
  return SetExtra(job, kGuaranteeKey,
                  {{"guarantee", record.guarantee},
                   {"reason", record.reason},
                   {"arithmetic", record.arithmetic}});
}

}  // namespace heddle::checkpoint
