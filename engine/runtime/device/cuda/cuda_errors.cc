#include "engine/runtime/device/cuda/cuda_errors.h"

#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

namespace heddle::runtime::cuda {

Status StatusOf(int code, std::string_view call) {
  const auto error = static_cast<cudaError_t>(code);
  switch (error) {
    case cudaSuccess:
      return Status::Ok();
    case cudaErrorMemoryAllocation:
      return ResourceExhaustedError("{}: the card's memory does not suffice", call);
    default:
      return InternalError(
          "{}: the card failed with {} ({}); this process computes no more: start its worker again",
          call, cudaGetErrorName(error), cudaGetErrorString(error));
  }
}

Status StatusOf(const std::exception& error) {
  const auto* const known = dynamic_cast<const c10::Error*>(&error);
  std::string_view what = known == nullptr ? error.what() : known->what_without_backtrace();
  what = what.substr(0, what.find('\n'));
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return ResourceExhaustedError("{}", what);
  }
  return InternalError("{}", what);
}

}  // namespace heddle::runtime::cuda
