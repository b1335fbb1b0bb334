#include "engine/runtime/device_tensors.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <span>
#include <utility>

#include <ATen/ATen.h>

#include "base/check.h"
#include "base/log.h"
#include "base/mutex.h"
#include "engine/program/memory.h"
#include "engine/runtime/device/tensor.h"

namespace heddle::runtime {

namespace {

/// Drivers export whole pages of this size.
constexpr size_t kExportPage = size_t{2} << 20;
constexpr size_t kLeastSlab = 2 * kExportPage;

const graph::TensorType kTrialType{DType::kI32,
                                   {static_cast<int64_t>(comm::kTrialBytes / sizeof(int32_t))}};

/// Trials of this process that lost their peer, as where RDMA breaks over device memory. It may have
/// had another reason once.
constexpr int kMostLost = 2;
std::atomic<int> lost_trials = 0;

}  // namespace

/// The memory, in slabs that are exported and imported once.
class DeviceTensors::Pool {
 public:
  struct Slab {
    std::shared_ptr<ExportedMemory> exported;
    comm::SharedBuffer imported;  // Goes first.
    std::set<int> registered;     ///< Peers whose messages may use it.
  };
  struct Piece {
    std::byte* memory = nullptr;
    at::Device place = at::kCPU;
  };

  Pool(comm::Endpoint& endpoint, Device& device) : endpoint_(&endpoint), device_(&device) {}

  /// Errors: those of Device::Export and of the import; kUnimplemented: the device exports none.
  Result<Piece> Take(size_t bytes) {
    const MutexLock lock(mutex_);
    std::vector<Free>& free = free_[bytes];
    const auto ended =
        std::find_if(free.begin(), free.end(), [](const Free& one) { return one.used.Ended(); });
    if (ended == free.end()) {
      return Cut(bytes);
    }
    const Piece piece = ended->piece;
    free.erase(ended);
    return piece;
  }
  void Give(const Piece& piece, size_t bytes) {
    const MutexLock lock(mutex_);
    if (device_ != nullptr) {
      free_[bytes].push_back({.piece = piece, .used = device_->Computed()});
    }
  }
  /// Registers the slab of `tensor` for messages with `peer`, once.
  Status Register(comm::Communicator& group, int peer, const at::Tensor& tensor) {
    Slab& slab = SlabOf(tensor);
    if (!slab.registered.contains(peer)) {
      HEDDLE_RETURN_IF_ERROR(
          group.RegisterDeviceMemory(peer, slab.exported->bytes(), /*urgent=*/true));
      slab.registered.insert(peer);
    }
    return Status::Ok();
  }
  /// Precondition: the tensor was made here.
  Slab& SlabOf(const at::Tensor& tensor) {
    const auto* const at = static_cast<const std::byte*>(tensor.data_ptr());
    const MutexLock lock(mutex_);
    const auto found = std::ranges::find_if(slabs_, [at](const auto& slab) {
      const std::span<std::byte> bytes = slab->exported->bytes();
      return at >= bytes.data() && at < bytes.data() + bytes.size();
    });
    HEDDLE_CHECK(found != slabs_.end(), "a tensor of other memory");
    return **found;
  }
  /// The endpoint and the device go; tensors may stay.
  void Close() {
    const MutexLock lock(mutex_);
    endpoint_ = nullptr;
    device_ = nullptr;
    free_.clear();
  }

 private:
  struct Free {
    Piece piece;
    Mark used;  ///< Until it has ended, compute uses the memory.
  };

  Result<Piece> Cut(size_t bytes) HEDDLE_REQUIRES(mutex_) {
    if (rest_.size() < bytes) {
      const size_t whole =
          (std::max(bytes, kLeastSlab) + kExportPage - 1) / kExportPage * kExportPage;
      HEDDLE_ASSIGN_OR_RETURN(auto exported, device_->Export(whole));
      if (exported == nullptr) {
        return UnimplementedError("the device exports no memory");
      }
      HEDDLE_ASSIGN_OR_RETURN(
          auto imported,
          endpoint_->ImportDeviceMemory({.fd = exported->fd(), .bytes = exported->bytes()}));
      rest_ = exported->bytes();
      slabs_.push_back(std::make_unique<Slab>());
      slabs_.back()->exported = std::move(exported);
      slabs_.back()->imported = std::move(imported);
    }
    const Piece cut{.memory = rest_.data(), .place = slabs_.back()->exported->place()};
    rest_ = rest_.subspan(bytes);
    return cut;
  }

  Mutex mutex_;
  comm::Endpoint* endpoint_ HEDDLE_GUARDED_BY(mutex_);
  Device* device_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Slab>> slabs_ HEDDLE_GUARDED_BY(mutex_);
  std::span<std::byte> rest_ HEDDLE_GUARDED_BY(mutex_);                 ///< Of the last slab.
  std::map<size_t, std::vector<Free>> free_ HEDDLE_GUARDED_BY(mutex_);  ///< By size.
};

DeviceTensors::DeviceTensors(comm::Endpoint& endpoint, Device& device)
    : endpoint_(endpoint),
      device_(device),
      pool_(std::make_shared<Pool>(endpoint, device)) {}

DeviceTensors::~DeviceTensors() {
  pool_->Close();
}

// Pairs come one after the other, in an order that all workers share: nobody waits for one that
// waits for another.
Status DeviceTensors::Agree(comm::Communicator& group,
                            std::vector<int> peers,
                            uint64_t tag,
                            Deadline deadline) {
  group_ = &group;
  const int own = group.rank();
  std::erase_if(peers, [&](int peer) { return peer == own || !group.places(peer); });
  std::ranges::sort(peers, {}, [own](int peer) { return std::pair(std::minmax({own, peer})); });
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  for (const int peer : peers) {
    HEDDLE_RETURN_IF_ERROR(Try(peer, tag, deadline));
  }
  return Status::Ok();
}

Status DeviceTensors::Try(int peer, uint64_t tag, Deadline deadline) {
  const auto memory =
      lost_trials < kMostLost
          ? Make(kTrialType)
          : Result<at::Tensor>(UnimplementedError("messages of device memory have failed before"));
  comm::DeviceTrial trial;
  if (memory.ok()) {
    trial = {
        .bytes = MemoryOf(*memory),
        .write =
            [&](std::span<const std::byte> host) {
              at::Tensor from = HostTensor(kTrialType);
              std::ranges::copy(host, BytesOf(from).begin());
              const Copied there = device_.Upload(std::move(from));
              device_.Await(there.mark);
              device_.Prepare([to = *memory, from = there.tensor] { at::Tensor(to).copy_(from); });
              return device_.Computed().Wait(deadline);
            },
        .read =
            [&](std::span<std::byte> host) {
              HEDDLE_RETURN_IF_ERROR(Flush(*memory));
              const Copied here = device_.Download(*memory);
              HEDDLE_RETURN_IF_ERROR(here.mark.Wait(deadline));
              std::ranges::copy(BytesOf(here.tensor), host.begin());
              return Status::Ok();
            }};
  }
  const Status status = endpoint_.TryDeviceMemory(*group_, peer, tag, trial, deadline);
  if (status.ok()) {
    peers_.insert(peer);
    LogInfo("messages with {} lie in the device's memory (dma-buf)", group_->member_name(peer));
    return status;
  }
  if (status.code() != StatusCode::kUnimplemented) {
    if (memory.ok() && status.code() != StatusCode::kAborted) {
      ++lost_trials;
    }
    return status;
  }
  if (!device_.is_host()) {
    LogInfo("messages with {} go through the host's memory: {}", group_->member_name(peer),
            memory.ok() ? status.message() : memory.status().message());
  }
  return Status::Ok();
}

Result<at::Tensor> DeviceTensors::Make(const graph::TensorType& type) {
  const auto bytes = static_cast<size_t>(program::SharedPieceBytes(type.bytes()));
  HEDDLE_ASSIGN_OR_RETURN(const Pool::Piece piece, pool_->Take(bytes));
  return at::from_blob(
      piece.memory, type.shape,
      [pool = pool_, piece, bytes](void* /*data*/) { pool->Give(piece, bytes); },
      at::TensorOptions().dtype(ToScalarType(type.dtype)).device(piece.place));
}

at::Tensor DeviceTensors::Empty(int peer, const graph::TensorType& type) {
  if (!peers_.contains(peer) || type.bytes() < program::kLeastSharedBytes) {
    return {};
  }
  auto made = Make(type);
  Status status = made.status();
  if (made.ok()) {
    status = pool_->Register(*group_, peer, *made);
  }
  if (status.ok()) {
    return *std::move(made);
  }
  LogWarning("messages with {} go through the host's memory from now on: {}",
             group_->member_name(peer), status.message());
  peers_.erase(peer);
  return {};
}

Status DeviceTensors::StatusOf(const Status& message) {
  if (message.code() != StatusCode::kUnimplemented) {
    return message;
  }
  if (lost_trials.exchange(kMostLost) < kMostLost) {
    LogWarning("all messages go through the host's memory from now on: {}", message.message());
  }
  return UnavailableError("{}", message.message());
}

Status DeviceTensors::Flush(const at::Tensor& tensor) {
  return pool_->SlabOf(tensor).exported->Flush();
}

}  // namespace heddle::runtime
