/// \file
/// What the caller knows of a checkpoint's state, in JobState::extra: an object with the fields
/// below, beside others that are kept. A field that is missing or malformed counts as not known. The
/// setters' errors: kInvalidArgument (`extra` is not a JSON object), kDataLoss (not JSON).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/status.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// The validation loss: {"validation_loss": 2.31}. None: it has none.
std::optional<double> ValidationLoss(const JobState& job);

/// Stores the validation loss. A loss that is not finite is not stored.
Status SetValidationLoss(JobState& job, double loss);

/// The fingerprint of the data that the state was trained on: {"data": "00f1e2d3c4b5a697"}. 0: it
/// has none.
uint64_t DataFingerprint(const JobState& job);

/// Stores the data fingerprint; 0 is not stored.
Status SetDataFingerprint(JobState& job, uint64_t fingerprint);

/// What is promised of the bits of a state, and why (elastic/control/provenance.h).
struct GuaranteeRecord {
  std::string guarantee = "unknown";  ///< "plan-invariant", "per-plan", "unknown" or "none".
  std::string reason = {};            ///< Why it is not plan-invariant.
  /// What its steps were computed on, by part; empty: on unlike workers, or it is not known.
  std::map<std::string, std::string> arithmetic = {};
  friend bool operator==(const GuaranteeRecord&, const GuaranteeRecord&) = default;
};

/// The guarantee: {"guarantee": {"guarantee": "per-plan", "reason": "…", "arithmetic": {…}}}.
/// Checkpoints of earlier builds have none: "unknown", without a reason.
GuaranteeRecord GuaranteeOf(const JobState& job);

/// Stores the guarantee.
Status SetGuarantee(JobState& job, const GuaranteeRecord& record);

}  // namespace heddle::checkpoint
