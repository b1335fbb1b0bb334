#include "engine/runtime/device/cuda/peer_memory.h"

#include <array>
#include <cstring>
#include <map>
#include <random>
#include <utility>

#include <cuda_runtime_api.h>

#include "base/check.h"
#include "base/mutex.h"
#include "engine/runtime/device/cuda/card_memory.h"
#include "engine/runtime/device/cuda/code/add_tree.h"

namespace heddle::runtime::cuda {
namespace {

static_assert(kMostTreeAddends == kMostAddends && kMostTreePending == kMostPending);

// The unit of CUDA's own allocations: a handle opens whole ones, and shows nothing else so.
constexpr size_t kUnit = size_t{2} << 20;

/// The process's own arenas by number: CUDA does not open a handle in the process that made it.
class OwnArenas {
 public:
  struct Arena {
    std::weak_ptr<std::byte> memory;
    int ordinal = 0;
  };

  static OwnArenas& Get() {
    static auto* const arenas = new OwnArenas;  // The last arena may go when the process ends.
    return *arenas;
  }

  /// Which no other process has.
  uint64_t process() const { return process_; }
  uint64_t Add(Arena arena) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::erase_if(arenas_, [](const auto& other) { return other.second.memory.expired(); });
    arenas_[++newest_] = std::move(arena);
    return newest_;
  }
  Arena Find(uint64_t number) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto found = arenas_.find(number);
    return found == arenas_.end() ? Arena() : found->second;
  }

 private:
  OwnArenas() {
    std::random_device device;
    process_ = uint64_t{device()} << 32 | device();
  }

  uint64_t process_ = 0;
  Mutex mutex_;
  uint64_t newest_ HEDDLE_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Arena> arenas_ HEDDLE_GUARDED_BY(mutex_);
};

// An error that leaves the card as it was, unlike those that Queues::Try keeps.
bool Succeeds(cudaError_t code) {
  if (code != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // So that the next launch is not blamed for it.
  }
  return code == cudaSuccess;
}

bool ReadsCard(int own, int other) {
  int can = 0;
  if (own == other) {
    return true;
  }
  if (!Succeeds(cudaDeviceCanAccessPeer(&can, own, other)) || can == 0) {
    return false;
  }
  const cudaError_t code = cudaDeviceEnablePeerAccess(other, 0);
  return Succeeds(code) || code == cudaErrorPeerAccessAlreadyEnabled;
}

}  // namespace

Result<PeerMemory::Arena> CardPeerMemory::Allocate(size_t bytes) {
  queues_->Use();
  const size_t whole = (bytes + kUnit - 1) / kUnit * kUnit;
  void* const memory = AllocateOnCard(whole);
  if (memory == nullptr) {
    return ResourceExhaustedError("the card has no {} bytes for sums of gradients", whole);
  }
  *in_use_ += static_cast<int64_t>(whole);
  const std::shared_ptr<std::byte> owner(
      static_cast<std::byte*>(memory),
      [ordinal = queues_->ordinal(), whole, in_use = in_use_](std::byte* freed) {
        static_cast<void>(cudaSetDevice(ordinal));  // Else the thread opens another card.
        static_cast<void>(cudaFree(freed));         // CUDA may have ended before.
        *in_use -= static_cast<int64_t>(whole);
      });
  cudaIpcMemHandle_t ipc{};
  const cudaError_t code = cudaIpcGetMemHandle(&ipc, memory);
  if (!Succeeds(code)) {
    return FailedPreconditionError("other processes cannot read the card's memory: {}",
                                   cudaGetErrorName(code));
  }
  ByteWriter handle;
  handle.Put(OwnArenas::Get().process());
  handle.Put(OwnArenas::Get().Add({.memory = owner, .ordinal = queues_->ordinal()}));
  handle.PutRaw(std::as_bytes(std::span(&ipc, 1)));
  return Arena{.memory = owner, .handle = handle.Take()};
}

Result<std::shared_ptr<std::byte>> CardPeerMemory::Open(std::span<const std::byte> handle) {
  queues_->Use();
  ByteReader reader(handle);
  HEDDLE_ASSIGN_OR_RETURN(const auto process, reader.Get<uint64_t>());
  HEDDLE_ASSIGN_OR_RETURN(const auto number, reader.Get<uint64_t>());
  cudaIpcMemHandle_t ipc{};
  HEDDLE_ASSIGN_OR_RETURN(const auto raw, reader.GetRaw(sizeof(ipc)));
  std::memcpy(&ipc, raw.data(), sizeof(ipc));
  const int ordinal = queues_->ordinal();
  if (process == OwnArenas::Get().process()) {
    const OwnArenas::Arena arena = OwnArenas::Get().Find(number);
    std::shared_ptr<std::byte> memory = arena.memory.lock();
    if (memory == nullptr || !ReadsCard(ordinal, arena.ordinal)) {
      return FailedPreconditionError("card {} does not read the memory of card {}", ordinal,
                                     arena.ordinal);
    }
    return memory;
  }
  void* memory = nullptr;
  const cudaError_t code = cudaIpcOpenMemHandle(&memory, ipc, cudaIpcMemLazyEnablePeerAccess);
  if (!Succeeds(code)) {
    return FailedPreconditionError("card {} does not read another worker's memory: {}", ordinal,
                                   cudaGetErrorName(code));
  }
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), [ordinal](std::byte* opened) {
    static_cast<void>(cudaSetDevice(ordinal));
    static_cast<void>(cudaIpcCloseMemHandle(opened));  // CUDA may have ended before.
  });
}

Mark CardPeerMemory::Copy(const Mark& after,
                          std::vector<Stretch> stretches,
                          std::shared_ptr<void> kept) {
  queues_->Use();
  queues_->Await(Queue::kPeers, EventOf(after));
  for (const Stretch& stretch : stretches) {
    queues_->Try(cudaMemcpyAsync(stretch.to, stretch.from, stretch.bytes, cudaMemcpyDefault,
                                 queues_->stream(Queue::kPeers)),
                 "cudaMemcpyAsync");
  }
  return queues_->MarkOf(Queue::kPeers, {.tensors = {}, .memory = {std::move(kept)}});
}

Mark CardPeerMemory::Add(Addition addition, std::shared_ptr<void> kept) {
  HEDDLE_CHECK(!addition.addends.empty() && addition.addends.size() <= kMostAddends &&
                   addition.additions.size() == addition.addends.size(),
               "a sum of {} addends", addition.addends.size());
  queues_->Use();
  TreeAddends addends{};
  addends.count = static_cast<int>(addition.addends.size());
  for (size_t i = 0; i < addition.addends.size(); ++i) {
    addends.memory[i] = addition.addends[i];
    addends.additions[i] = addition.additions[i];
  }
  if (addition.elements > 0) {  // CUDA launches no kernel of no blocks.
    CUstream_st* const stream = queues_->stream(Queue::kPeers);
    if (addition.dtype == DType::kF32) {
      AddTree(addends, reinterpret_cast<float*>(addition.sum), addition.elements, stream);
    } else {
      HEDDLE_CHECK(addition.dtype == DType::kF64, "a sum of {}", DTypeName(addition.dtype));
      AddTree(addends, reinterpret_cast<double*>(addition.sum), addition.elements, stream);
    }
    queues_->Try(cudaGetLastError(), "a sum of gradients");
  }
  return queues_->MarkOf(Queue::kPeers, {.tensors = {}, .memory = {std::move(kept)}});
}

}  // namespace heddle::runtime::cuda
