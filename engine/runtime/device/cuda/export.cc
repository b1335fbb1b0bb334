#include "engine/runtime/device/cuda/export.h"

#include <utility>

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "base/system/unique_fd.h"
#include "engine/runtime/device/cuda/card_memory.h"
#include "engine/runtime/device/cuda/cuda_errors.h"

namespace heddle::runtime::cuda {
namespace {

/// What the driver exports: whole pages of the card, in place and size.
constexpr size_t kPage = size_t{2} << 20;

size_t InPages(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

Status Try(cudaError_t code, const char* call) {
  if (code != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // The caller does without the memory.
  }
  return StatusOf(static_cast<int>(code), call);
}

/// A dma-buf of whole pages at `address`. The driver's library has the call since CUDA 11.7, and
/// libtorch has loaded it. Errors: kUnimplemented.
Result<UniqueFd> DmaBufOf(uint64_t address, size_t bytes) {
  constexpr int kAsDmaBuf = 1;  // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
  using Call = int(void*, uint64_t, size_t, int, unsigned long long);  // NOLINT: as cuda.h
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  Call* const call =
      driver == nullptr ? nullptr
                        : reinterpret_cast<Call*>(::dlsym(driver, "cuMemGetHandleForAddressRange"));
  if (call == nullptr) {
    return UnimplementedError("libcuda.so.1 has no cuMemGetHandleForAddressRange");
  }
  int descriptor = -1;
  if (const int code = call(&descriptor, address, bytes, kAsDmaBuf, 0); code != 0) {
    return UnimplementedError("cuMemGetHandleForAddressRange returned {}", code);
  }
  return UniqueFd(descriptor);
}

/// Whether writes of RDMA devices must be flushed before compute reads them. Errors:
/// kUnimplemented (they must and cannot), CUDA's.
Result<bool> NeedsFlush(int ordinal) {
  int ordering = 0;
  int options = 0;
  HEDDLE_RETURN_IF_ERROR(
      Try(cudaDeviceGetAttribute(&ordering, cudaDevAttrGPUDirectRDMAWritesOrdering, ordinal),
          "cudaDeviceGetAttribute"));
  HEDDLE_RETURN_IF_ERROR(
      Try(cudaDeviceGetAttribute(&options, cudaDevAttrGPUDirectRDMAFlushWritesOptions, ordinal),
          "cudaDeviceGetAttribute"));
  if (ordering >= cudaGPUDirectRDMAWritesOrderingOwner) {
    return false;
  }
  if ((options & cudaFlushGPUDirectRDMAWritesOptionHost) == 0) {
    return UnimplementedError("the card neither orders nor flushes writes of RDMA devices");
  }
  return true;
}

class CardMemory final : public ExportedMemory {
 public:
  explicit CardMemory(int ordinal) : ordinal_(ordinal) {}
  ~CardMemory() override {
    file_.Reset();
    if (allocated_ != nullptr && cudaSetDevice(ordinal_) == cudaSuccess) {
      cudaFree(allocated_);  // Waits for compute that uses it.
    }
  }

  Status Allocate(size_t bytes) {
    HEDDLE_ASSIGN_OR_RETURN(flushes_, NeedsFlush(ordinal_));
    HEDDLE_RETURN_IF_ERROR(Try(cudaSetDevice(ordinal_), "cudaSetDevice"));
    const size_t whole = InPages(bytes);
    allocated_ = AllocateOnCard(whole + kPage);
    if (allocated_ == nullptr) {
      return ResourceExhaustedError("the card has no {} bytes for messages", whole + kPage);
    }
    const auto begin = InPages(reinterpret_cast<uint64_t>(allocated_));
    HEDDLE_ASSIGN_OR_RETURN(file_, DmaBufOf(begin, whole));
    bytes_ = {reinterpret_cast<std::byte*>(begin), whole};
    return Status::Ok();
  }

  int fd() const override { return file_.get(); }
  std::span<std::byte> bytes() const override { return bytes_; }
  at::Device place() const override { return {at::kCUDA, static_cast<c10::DeviceIndex>(ordinal_)}; }
  Status Flush() override {
    if (!flushes_) {
      return Status::Ok();
    }
    HEDDLE_RETURN_IF_ERROR(Try(cudaSetDevice(ordinal_), "cudaSetDevice"));
    return Try(cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice,
                                                  cudaFlushGPUDirectRDMAWritesToOwner),
               "cudaDeviceFlushGPUDirectRDMAWrites");
  }

 private:
  const int ordinal_;
  bool flushes_ = true;
  void* allocated_ = nullptr;
  UniqueFd file_;
  std::span<std::byte> bytes_;
};

}  // namespace

Result<std::shared_ptr<ExportedMemory>> ExportMemory(int ordinal, size_t bytes) {
  auto memory = std::make_shared<CardMemory>(ordinal);
  HEDDLE_RETURN_IF_ERROR(memory->Allocate(bytes));
  return std::shared_ptr<ExportedMemory>(std::move(memory));
}

}  // namespace heddle::runtime::cuda
