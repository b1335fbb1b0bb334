/// \file
/// A card's memory outside of libtorch's, for what other processes and devices use.
#pragma once

#include <cstddef>

namespace heddle::runtime::cuda {

/// Allocates `bytes` on the calling thread's card; for cudaFree. If they are missing, libtorch first
/// gives back what it keeps of tensors that are gone. Null: they are missing. Thread: any.
void* AllocateOnCard(size_t bytes);

}  // namespace heddle::runtime::cuda
