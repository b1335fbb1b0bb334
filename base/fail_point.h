/// \file
/// Moments that a test chooses: a process started with HEDDLE_FAIL_POINT=NAME:COUNT ends, as by
/// kill -9, when it passes the point NAME for the COUNT-th time; with NAME:COUNT:hang the thread
/// that passes stands still for ever instead, and all others go on. One that is started with
/// HEDDLE_SPOILT_STEPS=FILE computes no numbers in the steps that FILE lists, one a line, which may
/// be written while it runs. Without the variables each costs one branch.
#pragma once

#include <cstdint>
#include <string_view>

namespace heddle {

/// Thread: any. Aborts when the variable has another form.
void FailPoint(std::string_view name);

/// Whether the first result of `step` in this process is to be NaN. A file that cannot be read
/// lists nothing. Thread: any.
bool StepIsSpoilt(int64_t step);

}  // namespace heddle
