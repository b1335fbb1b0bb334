/// \file
/// Measures a worker: seconds of every distinct node of a graph, and of folding, updating and
/// copying bytes, on the device as it is (emulated speed included). Seconds of work.
#pragma once

#include "base/progress.h"
#include "base/status.h"
#include "engine/graph/graph.h"
#include "engine/program/profile.h"

namespace heddle::runtime {

/// Measures the profile of a device that is emulated at `speed` (1: as it is), without a worker's
/// name and memory. Every distinct NodeSignature is run once to warm up, then all of them in turn,
/// 3 to 100 times within 5 seconds, so that operands come from where a step would find them; the
/// median counts. `progress` hears of every run. Needs the memory of the operands of one node of
/// each kind. Errors: kInternal when a kernel fails.
Result<program::WorkerProfile> MeasureProfile(const graph::Graph& graph,
                                              double speed,
                                              Progress& progress);

}  // namespace heddle::runtime
