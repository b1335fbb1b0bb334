/// \file
/// A card's memory that RDMA devices read and write, exported by CUDA's driver as a dma-buf.
#pragma once

#include <cstddef>
#include <memory>

#include "base/status.h"
#include "engine/runtime/device/exported_memory.h"

namespace heddle::runtime::cuda {

/// Implements Device::Export for the card `ordinal`. Allocates outside of libtorch's memory.
/// Errors: kUnimplemented (the driver does not export memory, or the writes of RDMA devices cannot
/// be flushed where the card needs it), kResourceExhausted. Thread: any.
Result<std::shared_ptr<ExportedMemory>> ExportMemory(int ordinal, size_t bytes);

}  // namespace heddle::runtime::cuda
