/// \file
/// Parses JSON from untrusted files: nesting is bounded, and keys are unique within an object.
#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"

namespace heddle::checkpoint {

/// Parses `text`, whose size the caller has bounded; the top-level value has depth 0.
/// Errors: kDataLoss (not JSON, nested deeper than `maximum_depth`, or a repeated key).
Result<nlohmann::json> ParseStrictJson(std::string_view text, int maximum_depth);

}  // namespace heddle::checkpoint
