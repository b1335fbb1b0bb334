/// \file
/// What this process takes of the machine's memory.
#pragma once

#include <cstdint>

namespace heddle {

/// Returns the bytes of the process that are in memory: libraries, tensors, stacks, and what was freed
/// and not given back to the system. 0: the system does not say. Thread: any.
int64_t ResidentBytes();
/// Returns the most that ResidentBytes() has been since the last ForgetResidentPeak, or, where the
/// system cannot forget it, since the process began. Thread: any.
int64_t ResidentPeak();
/// Gives freed memory back to the system, and begins ResidentPeak() anew. Thread: any.
void ForgetResidentPeak();

}  // namespace heddle
