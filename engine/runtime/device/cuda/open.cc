#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <string>

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/machine/cards.h"
#include "engine/machine/device_choice.h"
#include "engine/machine/device_name.h"
#include "engine/runtime/device/card_registry.h"
#include "engine/runtime/device/cuda/cuda_device.h"
#include "engine/runtime/device/cuda/cuda_errors.h"
#include "engine/runtime/device/cuda/exact.h"

namespace heddle::runtime::cuda {
namespace {

// The compute capabilities that Heddle's kernels are compiled for, as 90 for 9.0 (CMake).
constexpr std::array kCompiledFor = {HEDDLE_CUDA_COMPILED_FOR};

// A card runs code of its own major version whose minor version is not above its own.
bool HasKernelsFor(int major, int minor) {
  return std::ranges::any_of(
      kCompiledFor, [&](int compiled) { return compiled / 10 == major && compiled % 10 <= minor; });
}

// CUDA's number of the card at a place on the bus. It is not that of nvidia-smi: CUDA counts what
// CUDA_VISIBLE_DEVICES names, and the fastest first (CUDA_DEVICE_ORDER).
Result<int> OrdinalOf(const std::string& place) {
  int count = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return InvalidArgumentError("CUDA {} does not start: {}", HEDDLE_CUDA_COMPILER,
                                cudaGetErrorString(code));
  }
  int ordinal = 0;
  if (place.empty() || cudaDeviceGetByPCIBusId(&ordinal, place.c_str()) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return InvalidArgumentError(
        "CUDA does not show the card at the place '{}' of the bus: CUDA_VISIBLE_DEVICES may hide "
        "it",
        place);
  }
  int major = 0;
  int minor = 0;
  HEDDLE_RETURN_IF_ERROR(StatusOf(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal), "the card"));
  HEDDLE_RETURN_IF_ERROR(StatusOf(
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal), "the card"));
  if (!HasKernelsFor(major, minor)) {
    return InvalidArgumentError(
        "its compute capability is {}.{}, and this build has kernels for {}: 8.0 is the least, and "
        "HEDDLE_CUDA_ARCHITECTURES of CMake adds others",
        major, minor, fmt::join(kCompiledFor, ", "));
  }
  return ordinal;
}

// Starts CUDA and libtorch on the card.
Status Begin(int ordinal) {
  HEDDLE_RETURN_IF_ERROR(StatusOf(cudaSetDevice(ordinal), "cudaSetDevice"));
  HEDDLE_RETURN_IF_ERROR(StatusOf(cudaFree(nullptr), "the card's start"));
  try {
    at::globalContext().lazyInitDevice(at::kCUDA);
  } catch (const std::exception& error) {
    return StatusOf(error);
  }
  ComputeExactly();
  return Status::Ok();
}

// What a worker may use of the card's memory: what is free beside the context and what this process
// has taken before, without room for the libraries' workspaces and for what no plan counts.
Result<int64_t> MemoryFor(int ordinal) {
  constexpr size_t kWorkspaces = machine::kLeastFreeBytes;
  size_t free = 0;
  size_t all = 0;
  HEDDLE_RETURN_IF_ERROR(StatusOf(cudaMemGetInfo(&free, &all), "cudaMemGetInfo"));
  const auto stats =
      c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(ordinal));
  free += static_cast<size_t>(stats.reserved_bytes[0].current);
  if (free <= kWorkspaces) {
    return ResourceExhaustedError("{} bytes of its memory are free, more than {} are needed", free,
                                  kWorkspaces);
  }
  return static_cast<int64_t>(free - kWorkspaces);
}

// A name that no other card has, nor another part of a divided one.
Result<std::string> NameOfCard(int ordinal) {
  cudaDeviceProp properties = {};
  HEDDLE_RETURN_IF_ERROR(
      StatusOf(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties"));
  std::string name;
  for (const char byte : properties.uuid.bytes) {
    name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return name;
}

// What is left of a link's nominal rate for large copies, about, on NVLink and on PCIe.
constexpr double kPeerPart = 0.8;

Result<std::unique_ptr<Device>> Open(int number, const DeviceOptions& options) {
  const std::string name =
      machine::DeviceNameText({.kind = machine::DeviceName::Kind::kCuda, .index = number});
  if (options.speed < 1) {
    return InvalidArgumentError(
        "device '{}': an emulated speed of {} needs the processor: give cpu, or speed 1", name,
        options.speed);
  }
  const machine::Cards cards = machine::FindCards();
  if (static_cast<size_t>(number) >= cards.list.size()) {
    return InvalidArgumentError("device '{}': the card is gone", name);
  }
  const Result<int> ordinal = OrdinalOf(cards.list[static_cast<size_t>(number)].bus_id);
  if (!ordinal.ok()) {
    return ordinal.status().WithContext("device '{}'", name);
  }
  if (const Status begun = Begin(*ordinal); !begun.ok()) {
    return begun.WithContext("device '{}'", name);
  }
  const Result<int64_t> memory = MemoryFor(*ordinal);
  if (!memory.ok()) {
    return memory.status().WithContext("device '{}'", name);
  }
  Result<std::string> card = NameOfCard(*ordinal);
  if (!card.ok()) {
    return card.status().WithContext("device '{}'", name);
  }
  const auto nominal =
      static_cast<double>(cards.list[static_cast<size_t>(number)].peer_bytes_per_second);
  return std::unique_ptr<Device>(
      std::make_unique<CudaDevice>(*ordinal, CudaArithmetic(*ordinal, cards), *memory,
                                   *std::move(card), kPeerPart * nominal, options));
}

const CardRegistration registration(&Open);

}  // namespace
}  // namespace heddle::runtime::cuda
