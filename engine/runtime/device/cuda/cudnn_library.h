/// \file
/// cuDNN, which libtorch brings. Thread: any.
#pragma once

#include <string>

namespace heddle::runtime::cuda {

/// Returns what dlopen gives for libcudnn.so.9; null where it is missing, and in a build without
/// cuDNN's frontend, which makes attention of it.
void* CudnnLibrary();

/// Returns what computes attention in bf16: "cudnn" with its version and the frontend's, which
/// decide the bits, or "flash", libtorch's. Shapes that cuDNN refuses are computed by flash.
std::string AttentionName();

/// Returns cuDNN's version, 91900 for 9.19.0, or "unknown".
std::string CudnnVersion();

}  // namespace heddle::runtime::cuda
