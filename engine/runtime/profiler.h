/// \file
/// Measures a worker: seconds of every distinct node of a graph, and of folding, updating and
/// copying bytes, on the device as it is (emulated speed included). Seconds of work.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "engine/program/profile.h"
#include "engine/runtime/device/device_clock.h"

namespace heddle::runtime {

struct ProfilerOptions {
  std::string worker;
  int64_t memory_bytes = 0;                   ///< Cap that goes into the profile; 0: unlimited.
  Duration budget = std::chrono::seconds(5);  ///< Measuring stops repeating when it is spent.
};

/// Every distinct NodeSignature is run once to warm up, then all of them in turn, 3 to 15 times, so
/// that operands come from where a step would find them; the median counts. Needs the memory of the
/// operands of one node of each kind. Errors: kInternal when a kernel fails.
Result<program::WorkerProfile> MeasureProfile(const graph::Graph& graph,
                                              DeviceClock& clock,
                                              const ProfilerOptions& options);

}  // namespace heddle::runtime
