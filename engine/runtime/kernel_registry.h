/// \file
/// The list of registered kernels: for the test that every operator has a kernel and every kernel
/// an operator.
#pragma once

#include <string_view>
#include <vector>

namespace heddle::runtime {

/// Names of all registered kernels, ascending.
std::vector<std::string_view> KernelNames();

}  // namespace heddle::runtime
