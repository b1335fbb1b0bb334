#include "engine/runtime/device/cuda/exact.h"

#include <ATen/Context.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include "engine/runtime/device/cuda/cudnn_library.h"

namespace heddle::runtime::cuda {
namespace {

// The version by cublasGetProperty, whose first argument is 0 for the major one, and so on.
std::string CublasVersion() {
  using Property = int (*)(int, int*);
  const auto ask = reinterpret_cast<Property>(dlsym(RTLD_DEFAULT, "cublasGetProperty"));
  if (ask == nullptr) {
    return "unknown";
  }
  int parts[3] = {};
  for (int i = 0; i < 3; ++i) {
    ask(i, &parts[i]);
  }
  return fmt::format("{}.{}.{}", parts[0], parts[1], parts[2]);
}

std::string ModelOf(int ordinal) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess) {
    return "unknown";
  }
  return fmt::format("{} {}.{}, {} multiprocessors", properties.name, properties.major,
                     properties.minor, properties.multiProcessorCount);
}

}  // namespace

void ComputeExactly() {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  // Else all new memory is filled, which takes 6 % of a step.
  context.setDeterministicFillUninitializedMemory(false);
  context.setAllowTF32CuBLAS(false);
  context.setAllowTF32CuDNN(false);
  context.setBenchmarkCuDNN(false);
  context.setAllowFP16AccumulationCuBLAS(false);
  context.setAllowFP16ReductionCuBLAS(false);
  context.setAllowBF16ReductionCuBLAS(false);
}

Arithmetic CudaArithmetic(int ordinal, const machine::Cards& cards) {
  const Arithmetic host = CpuArithmetic();
  int runtime = 0;
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  return {{"card", ModelOf(ordinal)},
          {"driver", cards.driver.empty() ? "unknown" : cards.driver},
          {"cuda", fmt::format("{}.{}, nvcc {}", runtime / 1000, runtime % 1000 / 10,
                               HEDDLE_CUDA_COMPILER)},
          {"cublas", CublasVersion()},
          {"cudnn", CudnnVersion()},
          {"attention", AttentionName()},
          {"libtorch", host.at("libtorch")},
          {"libc", host.at("libc")},
          {"compiler", host.at("compiler")}};
}

}  // namespace heddle::runtime::cuda
