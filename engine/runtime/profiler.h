/// \file
/// Measures the profile of a worker's device: the time of each node of its work, and the
/// rates of folding, updating and copying bytes. A measurement takes several seconds.
#pragma once

#include "base/progress.h"
#include "base/status.h"
#include "engine/program/profile.h"
#include "engine/program/profiled_work.h"
#include "engine/runtime/device/device.h"

namespace heddle::runtime {

/// Measures and returns the profile of `device`. The profile lacks the worker's name and memory.
/// Each node of `work` runs twice to warm up, whatever that takes; then all of them run in turn, 3 to
/// 100 times within 5 seconds, so that their operands are in the caches no more than in a step. The
/// median of a node's runs counts. `progress` is notified of each run. The measurement needs the memory of
/// the operands of one node of each kind, on the device. Errors: kInternal (a kernel failed), the
/// device's. Thread: the one that computes; other load of the cores, or of a card, falsifies the
/// result.
Result<program::WorkerProfile> MeasureProfile(const program::ProfiledWork& work,
                                              Device& device,
                                              Progress& progress);

}  // namespace heddle::runtime
