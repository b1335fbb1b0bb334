/// \file
/// The registered kernels as a list, and the switch between a kernel's two forms.
#pragma once

#include <string_view>
#include <vector>

#include "engine/runtime/kernel.h"

namespace heddle::runtime {

/// Names of all registered kernels, ascending.
std::vector<std::string_view> KernelNames();

/// Replaces the kernel of `op`, which has one, and returns the former; for tests. Thread: not while
/// kernels run.
Kernel ReplaceKernel(std::string_view op, Kernel kernel);

/// Makes kernels on a CPU take the plain ATen form that other devices use (true), or their own
/// loops (false, the default). Thread: not while kernels run.
void PreferPlainAten(bool prefer);
bool PrefersPlainAten();

}  // namespace heddle::runtime
