/// \file
/// What tensors take of the host's memory.
#pragma once

#include <cstdint>

namespace heddle::runtime {

/// Counts the tensors that any thread makes in the host's memory from now on, by libtorch's
/// allocator. A second call changes nothing. Thread: any.
void CountHostTensors();

/// Returns the bytes of the counted tensors that exist, as the allocator rounds them. Thread: any.
int64_t HostTensorBytes();
/// Returns the most that HostTensorBytes() has been since the last ForgetHostTensorPeak. Thread: any.
int64_t HostTensorPeak();
/// Begins HostTensorPeak() anew, at what exists now. Thread: any.
void ForgetHostTensorPeak();

}  // namespace heddle::runtime
