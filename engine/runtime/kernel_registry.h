/// \file
/// The list of all registered kernels, and the switch between the two implementations of a kernel.
#pragma once

#include <string_view>
#include <vector>

#include "engine/runtime/kernel.h"

namespace heddle::runtime {

/// Returns the names of all registered kernels, ascending. Thread: any.
std::vector<std::string_view> KernelNames();

/// Replaces the kernel of `op`, which has one, and returns the former; for tests. Thread: any,
/// while no kernels run.
Kernel ReplaceKernel(std::string_view op, Kernel kernel);

/// Sets whether all devices use the plain ATen implementation (true), or their own loops and kernels
/// where they have some (false, the default). Thread: any, while no kernels run.
void PreferPlainAten(bool prefer);
/// Returns what PreferPlainAten has set. Thread: any.
bool PrefersPlainAten();

}  // namespace heddle::runtime
