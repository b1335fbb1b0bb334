/// \file
/// Memory of a device that other devices of the host read, each worker's from its own process:
/// copies into and out of it, and sums of what lies in several workers' memory. They run in one
/// queue of their own, beside compute and other copies, in the order of the calls.
///
/// A device reads a peer's memory as it is when the device gets there. Whoever reads what a peer
/// has written waits until the peer's mark has ended, and is told so by the peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/tensor/dtype.h"
#include "base/tensor/reduction_tree.h"
#include "engine/runtime/device/device.h"

namespace heddle::runtime {

/// Thread: any.
class PeerMemory {
 public:
  /// Memory that peers can open.
  struct Arena {
    std::shared_ptr<std::byte> memory;  ///< Uninitialised; freed with its last owner.
    Bytes handle;                       ///< By which devices of this host open it.
  };
  /// Bytes to copy. Each end is in the device's memory, or in an arena that is open.
  struct Stretch {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    size_t bytes = 0;
  };
  /// A sum of arrays, fp32 or fp64, in the order of an AdditionOrder.
  struct Addition {
    std::vector<const std::byte*> addends = {};
    std::vector<uint8_t> additions = {};
    std::byte* sum = nullptr;  ///< May be exactly one of `addends`.
    int64_t elements = 0;
    DType dtype = DType::kF32;
  };

  /// `bytes_per_second`: at which the device reads its peers' memory; 0: unknown.
  explicit PeerMemory(double bytes_per_second = 0) : bytes_per_second_(bytes_per_second) {}
  virtual ~PeerMemory() = default;
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  /// The rate at which the device is expected to read the memory of the host's other devices together;
  /// 0: there are none, or it is unknown.
  double bytes_per_second() const { return bytes_per_second_; }

  /// Allocates at least `bytes`, which count as memory in use. Errors: kResourceExhausted, the
  /// device's.
  virtual Result<Arena> Allocate(size_t bytes) = 0;
  /// Opens an arena of another device of this host, in this process or another, to read from it. It
  /// is closed with its last owner. Whoever reads it makes sure that the arena's owner has not freed
  /// it: what is read is undefined then, and CUDA does not promise that it can be read. Errors:
  /// kFailedPrecondition (this device cannot read it).
  virtual Result<std::shared_ptr<std::byte>> Open(std::span<const std::byte> handle) = 0;

  /// Queues copies that begin after `after`. `kept` lives until they have ended.
  virtual Mark Copy(const Mark& after,
                    std::vector<Stretch> stretches,
                    std::shared_ptr<void> kept) = 0;
  /// Queues a sum: bit for bit that of the processor, but for the payload of a NaN. `kept` lives
  /// until it has ended. Precondition: the order is one that AdditionOrder returned.
  virtual Mark Add(Addition addition, std::shared_ptr<void> kept) = 0;

 private:
  const double bytes_per_second_;
};

/// The most arrays that a device adds at once, and the most sums that wait for their other half.
inline constexpr size_t kMostAddends = 64;
inline constexpr size_t kMostPending = 12;

/// Returns the additions of FoldOrder (base/tensor/reduction_tree.h) as those of a stack: addend i is
/// put onto it, then result[i] times the two newest values become their sum, older + newer. Empty:
/// `nodes` are too many for a device. Thread: any.
std::vector<uint8_t> AdditionOrder(std::span<const TreeNode> nodes);

}  // namespace heddle::runtime
