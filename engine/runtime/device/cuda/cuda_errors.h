/// \file
/// CUDA's errors, and libtorch's on a card, as statuses. Thread: any.
#pragma once

#include <exception>
#include <string_view>

#include "base/status.h"

namespace heddle::runtime::cuda {

/// Returns the status of `code`, a cudaError_t that `call` gave: kResourceExhausted if memory is
/// missing, else kInternal with CUDA's name of the error; Ok for cudaSuccess.
Status StatusOf(int code, std::string_view call);

/// Returns the status of what a kernel threw: kResourceExhausted if the card's memory does not
/// suffice, else kInternal with the first line of its message.
Status StatusOf(const std::exception& error);

}  // namespace heddle::runtime::cuda
