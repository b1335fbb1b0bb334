/// \file
/// Moments that a test chooses: a process started with HEDDLE_FAIL_POINT=NAME:COUNT ends, as by
/// kill -9, when it passes the point NAME for the COUNT-th time. Without the variable a point costs
/// one branch.
#pragma once

#include <string_view>

namespace heddle {

/// Thread: any. Aborts when the variable has another form.
void FailPoint(std::string_view name);

}  // namespace heddle
