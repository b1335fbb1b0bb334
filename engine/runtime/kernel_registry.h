/// \file
/// The registered kernels as a list, and the switch between a kernel's two forms: for tests and
/// benchmarks.
#pragma once

#include <string_view>
#include <vector>

namespace heddle::runtime {

/// Names of all registered kernels, ascending.
std::vector<std::string_view> KernelNames();

/// Makes kernels on a CPU take the plain ATen form that other devices use (true), or their own
/// loops (false, the default). Thread: not while kernels run.
void PreferPlainAten(bool prefer);
bool PrefersPlainAten();

}  // namespace heddle::runtime
