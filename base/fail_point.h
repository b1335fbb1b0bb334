/// \file
/// Fault injection for tests. A process started with HEDDLE_FAIL_POINT=NAME:COUNT ends, as by
/// kill -9, when it passes the point NAME for the COUNT-th time; with NAME:COUNT:hang the thread
/// that passes it blocks for ever instead, and all others go on. A process started with
/// HEDDLE_SPOILT_STEPS=FILE computes NaN in the steps that FILE lists, one per line; the file may
/// be written while the process runs. Without the variables each call costs one branch.
#pragma once

#include <cstdint>
#include <string_view>

namespace heddle {

/// Ends the process, or blocks the calling thread, if HEDDLE_FAIL_POINT chooses this pass of
/// `name`. Aborts if the variable has another form. Thread: any.
void FailPoint(std::string_view name);

/// Whether the first result of `step` in this process is to be NaN. A file that cannot be read
/// counts as empty. Thread: any.
bool InjectsNaN(int64_t step);

}  // namespace heddle
