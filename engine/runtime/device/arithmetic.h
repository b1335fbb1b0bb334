/// \file
/// What the bits of a device's results depend on, beside the program that it runs and the number of
/// its threads: the processor or card, the instructions in use, and the libraries that compute.
#pragma once

#include <map>
#include <string>

namespace heddle::runtime {

/// The value of each part that decides bits, by the part's name. Devices with equal ones give the
/// same bits for the same program, values and number of threads.
using Arithmetic = std::map<std::string, std::string>;

/// The arithmetic of this process on its processor: "processor" (its name), "instructions" (the set
/// that Heddle's loops use, and libtorch's), "blas" (with the kernels that it chose), "libtorch",
/// "onednn" (with the instructions that it may use), "libc" and "compiler". Libraries are asked
/// where they can answer, because the environment and the kernel also choose what they use. Values
/// are printable ASCII. Thread: any.
Arithmetic CpuArithmetic();

}  // namespace heddle::runtime
