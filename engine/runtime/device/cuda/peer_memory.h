/// \file
/// Memory of a card that other cards' processes read, through handles of CUDA's interprocess
/// communication. It is CUDA's own, beside what libtorch allocates, whose memory may have none.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/runtime/device/cuda/queues.h"
#include "engine/runtime/device/peer_memory.h"

namespace heddle::runtime::cuda {

/// Copies and sums run in Queue::kPeers. Thread: any.
class CardPeerMemory final : public PeerMemory {
 public:
  /// `bytes_per_second` as for PeerMemory.
  CardPeerMemory(std::shared_ptr<Queues> queues, double bytes_per_second)
      : PeerMemory(bytes_per_second),
        queues_(std::move(queues)) {}

  Result<Arena> Allocate(size_t bytes) override;
  Result<std::shared_ptr<std::byte>> Open(std::span<const std::byte> handle) override;
  Mark Copy(const Mark& after, std::vector<Stretch> stretches, std::shared_ptr<void> kept) override;
  Mark Add(Addition addition, std::shared_ptr<void> kept) override;

  /// Bytes of the arenas that were allocated and are not freed.
  int64_t in_use() const { return in_use_->load(); }

 private:
  const std::shared_ptr<Queues> queues_;
  const std::shared_ptr<std::atomic<int64_t>> in_use_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace heddle::runtime::cuda
